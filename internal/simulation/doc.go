// Package simulation runs consumer groups through seeded schedules of trouble
// and checks that the promises of package arroyo hold.
//
// Each seed draws topics, members, pipelines and what happens to them: members
// that join, leave, crash and hang, networks that are cut, brokers and
// coordinators that move, commits and fetches that fail, user code that is
// slow, fails, panics or meets invalid messages. It plays that against
// memkafka in a synctest bubble, so minutes take milliseconds. A checker that
// knows nothing of the implementation then reads what was produced, what user
// code saw, what was committed and when, and what was dead-lettered, and names
// what is wrong in the words of the invariants.
//
//	go test ./internal/simulation -seeds 2000 -from 0   # so many, from a random one on
//	go test ./internal/simulation -seed 17 -v           # this one, with its schedule
//
// The program is not quite determined by its seed: goroutines interleave. A
// violation that a seed finds now and then is one all the same.
package simulation
