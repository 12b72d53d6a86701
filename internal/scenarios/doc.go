// Package scenarios has one table of scenarios, each of which runs on memkafka
// and, where a real broker can be made to do it, on the real Kafka, with one
// expected outcome for both.
package scenarios
