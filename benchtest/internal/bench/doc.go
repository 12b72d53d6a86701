// Package bench is what the benchmarks, the report and the comparison with
// other libraries share: a broker in a process of its own, readers that do the
// same work, and what they are measured with.
//
// A program that uses it calls ServeIfBroker first thing.
package bench
