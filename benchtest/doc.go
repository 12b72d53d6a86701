// Package benchtest measures what Arroyo costs on top of kgo. It has no API:
// everything is in its benchmarks and one test.
//
// # End to end
//
//	go test -run '^$' -bench EndToEnd ./benchtest
//
// A broker runs in a process of its own: in the same one it would hide most of
// what garbage collection costs. Two readers take turns over the same records,
// each round as a new group: a bare kgo poll loop, and a Processor that does
// the same work in three steps. Both have the same client options, verify the
// number and the sum of what they read, and have to have committed all of it.
//
// Units: records/s and cpu-ns/record are medians of the rounds; CPU is user
// and system time of the reading process, the broker's not included;
// allocs/record and B/record are heap objects and bytes allocated.
// cpu-ratio and throughput-ratio are Arroyo's figure divided by the bare
// loop's of the same round, also medians: a cpu-ratio of 1.05 means 5 % more
// CPU, a throughput-ratio of 0.95 means 5 % fewer records a second.
//
// GCs is how often the garbage collector ran in one reading. A processor has
// more records in flight than the bare loop, so in a program with hardly any
// heap the collector runs half as often, which saves about what the steps cost.
// With -Ballast the program has 256 MiB of other live heap, as services do:
// there the collector runs equally often for both and the ratios are those of
// Arroyo's own work, to a bare loop that is cheaper.
//
// # How to read it
//
// Read the ratios, and only those of one run. Absolute times change with the
// machine, and with what else it does: on a shared one throughput varies by
// 40 % between runs and CPU by 15 %. Allocations do not vary: a difference in
// the second decimal is real.
//
// Where the CPU goes is seen with -cpuprofile. The samples of a reader are
// labelled with its name, those of the garbage collector are not:
//
//	go test -run '^$' -bench 'EndToEnd/ForEach$' -cpuprofile cpu.out ./benchtest
//	go tool pprof -tagfocus=reader=arroyo -top benchtest.test cpu.out
//
// # Without a broker
//
//	go test -run '^$' -bench HotPath .
//
// in the root package drives spans, a lane, steps and the watermark with
// records that are in memory already. Its ns/record is the time from a fetched
// record to the watermark behind it; compare it with that of its own Bare,
// a plain loop over the same records. TestHotPathBudget, which is part of
// every go test, fails if a step allocates for each record.
//
// # In CI
//
//	ARROYO_BENCH_CI=1 go test -run TestBudget ./benchtest
//
// fails when the end-to-end comparison is outside of its bounds. It opens a
// port on the loopback interface and takes about ten seconds, so without the
// variable it is skipped.
package benchtest
