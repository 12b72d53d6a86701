// Package strategytest tests strategies: Conformance says whether one keeps the
// contract of arroyo.Strategy, as testing/fstest does for file systems, and
// Messages makes messages for a function under test.
//
// Neither needs a broker. A test that wants one uses package memkafka.
package strategytest
