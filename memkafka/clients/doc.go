// Package clients tests that clients other than franz-go work with memkafka: Sarama and kafka-go, and confluent-kafka for
// Python, which stands for all that are built on librdkafka. It is a module of its own, so that nobody else has to
// depend on them.
//
// The Python test makes a virtual environment and installs confluent-kafka from PyPI into it. It is skipped where there
// is no python3 or no way to PyPI, unless ARROYO_REQUIRE_PYTHON is 1.
package clients
