// Package integration holds the tests that need a real Apache Kafka. They run
// when internal/realkafka finds one; see there.
package integration
