// Command report measures a fixed set of benchmarks and writes the tables of
// docs/performance.md and the chart docs/performance.svg:
//
//	go run ./benchtest/report
//
// in the root of the repository. It takes about half an hour on two cores; let
// the machine do nothing else meanwhile. With -short it takes two minutes, and
// its figures say only that it works.
//
// Other libraries are measured by benchtest/peers, a module of its own. If it
// cannot be built, the report says so and has the rest. Sentry's Arroyo for Rust
// is in it with -rust.
//
// The text around the tables is written by hand: only what is between the two
// marker comments is replaced.
package main
