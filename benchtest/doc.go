// Package benchtest measures what Arroyo costs on top of kgo. It has no API:
// everything is in its benchmarks and one test.
//
//	go test -run '^$' -bench . ./benchtest
//
// takes about an hour; with -short two minutes, for a look at whether it works.
// Choose with -bench:
//
//   - EndToEnd: processors and bare kgo loops that do the same work in three
//     steps: decode, filter, count.
//   - Matrix: the same for 100 B, 1 KB and 10 KB, without compression, with lz4
//     and zstd, 1 to 1,000 partitions, and work that costs nothing, a
//     microsecond, or a wait of a millisecond.
//   - Parallel, Produce, Partitions: what their names say.
//   - Latency: from produced to settled, at a share of the highest rate.
//   - Rebalance: what the joining of a member costs it and the others.
//   - Stalled: the memory of a processor whose steps take nothing.
//
// A broker runs in a process of its own: in the same one it would hide most of
// what garbage collection costs. Readers take turns over the same records, each
// round as a new group, with the same client options; each has to read every
// record once, by number and sum, and has to have committed all of it.
//
// Units: records/s and cpu-ns/record are medians of the rounds; CPU is user
// and system time of the reading process, the broker's not included;
// allocs/record and B/record are heap objects and bytes allocated.
// cpu-ratio and throughput-ratio are a reader's figure divided by that of the
// first one, the loop written with kgo, in the same round, also medians: a
// cpu-ratio of 1.05 means 5 % more CPU, a throughput-ratio of 0.95 means 5 %
// fewer records a second.
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
// record to the watermark behind it; compare it with that of its own Bare, a
// plain loop over the same records, and Calls, one that calls the functions of
// three steps. TestHotPathBudget, which is part of every go test, fails if a
// step allocates for each record.
//
// # In CI
//
//	ARROYO_BENCH_CI=1 go test -run TestBudget ./benchtest
//
// fails when the end-to-end comparison is outside of its bounds. It opens a
// port on the loopback interface and takes about ten seconds, so without the
// variable it is skipped.
package benchtest
