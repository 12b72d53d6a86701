// Command peers compares Arroyo with other libraries that read Kafka: Sarama,
// kafka-go, Watermill and confluent-kafka-go, and Sentry's Arroyo for Python and
// for Rust. It is a module of its own, so that nobody else has to depend on
// them.
//
//	cd benchtest/peers && go run .
//
// writes a line of JSON (bench.Row) for each of them to standard output, and a
// table to standard error. It takes about five minutes; with -short half of
// one, for a look at whether it works.
//
// Each library reads a topic from its beginning as the only member of a new
// group, decodes a number from each record, adds it up, and commits every
// second what it has added: at least once. Each does so in a process of its own,
// franz-go's bare loop and Arroyo too, and all take turns, round by round. After
// each reading it is checked that every record was read once, by number and sum,
// and that all were committed; who fails is left out with a line that says why.
//
// Throughput and CPU are those from when a process made its client until it had
// done the work of the last record. So they include joining the group; the time
// to the first record is reported apart. CPU is user and system time of the
// whole process. Slow libraries read a fifth of the records, so as to take about
// as long as the others.
//
// "defaults" is what a library does when it is told nothing but what the work
// needs. "tuned" has what was found to be fastest of fetch sizes and queues, and
// marks for commit what is cheap to mark; what exactly is in the file of the
// library.
//
// -cells reads other topics: values of 100 B to 10 KB, lz4 and zstd, 1 to 1,000
// partitions, and work of a microsecond.
//
// The broker is the one of the other benchmarks, a cluster of several with
// -brokers, or with -kafka the real Kafka that internal/realkafka/fetch fetches.
//
// confluent-kafka-go needs cgo. Sentry's Arroyo for Python needs python3 and
// installs itself with pip into a virtual environment in the user's cache
// folder; the one for Rust needs cargo, cmake and a C compiler, and is built
// there with -rust. What cannot be had is left out, with a line that says so.
package main
