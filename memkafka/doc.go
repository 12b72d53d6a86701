// Package memkafka is a Kafka broker in memory, for tests of code that consumes from Kafka with franz-go.
//
// The client under test is the real one and speaks the real protocol; only the broker is a fake (franz-go's kfake), and
// it is reached over a network that is a pair of buffers. No port is opened, unless [Broker.Addr] is asked for one, no
// container started, nothing is written to disk. Inside a [testing/synctest] bubble time is virtual: a session timeout of
// 45 s costs a few milliseconds.
//
//	func TestIngest(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			broker := memkafka.New(t, memkafka.Topic("events", 4))
//
//			stop := memkafka.Start(t, func(ctx context.Context) error { // your code, which ends when ctx does
//				return ingest.Run(ctx, broker.ClientOptions()...)
//			})
//			broker.Produce("events", "a", "b", "c") // to partitions 0, 1 and 2
//			broker.WaitCommitted("ingest", "events", 3)
//
//			rival := broker.Join("ingest", "events") // a second member: a rebalance
//			broker.WaitStable("ingest", 2)
//			rival.Die() // another one, 45 s later
//			broker.WaitStable("ingest", 1)
//
//			if err := stop(); err != nil {
//				t.Error(err)
//			}
//		})
//	}
//
// [Broker.ClientOptions] are plain kgo options, so anything built on franz-go can be tested. Outside of a bubble
// everything works as well, in real time. [Open] makes a broker without a test, for examples and programs.
//
// # Failing
//
// Operations return no errors. With a broker of [New] an operation that fails ends the test, as t.Fatalf does, so call
// them on the test's goroutine; with a broker of [Open] it panics with an error. Waiting operations are bounded: when
// their time is over they fail, and say what they saw last.
//
// # Making things go wrong
//
// [Broker.Fail], [Broker.Delay], [Broker.Disconnect] and [Broker.Swallow] concern requests of a kind. [Broker.Host] is
// where clients run, to be cut off, slowed down, or put into a black hole; [Broker.Down] and [Broker.StopBroker] do that to
// the brokers. Rivals join, leave, die, hang, take partitions and come back; [Broker.Kick] and [Broker.ForceRebalance]
// need none. None of that concerns the methods of Broker themselves. [Broker.Log] tells what came of it, and a test that
// fails prints it.
//
// # In a bubble
//
//   - Make the broker and all clients inside the bubble, and close the clients before the test function returns. The
//     broker closes itself. A goroutine that is left over ends the test with a "deadlock" panic.
//   - Do not consume records compressed with zstd: franz-go's decoder has a finalizer that touches a channel of the
//     bubble after its end, and that kills the test binary. Produce with another codec, or none.
//   - Time stands still while a goroutine waits for a mutex. franz-go holds mutexes over requests in a few places,
//     overlapping commits for one, or commits of its autocommit while the member joins; if a test hangs there, run it with
//     -tags synctests, which franz-go understands.
//   - Use [testing/synctest.Wait] before you look at what another goroutine wrote.
//
// # Where it differs from Kafka
//
// kfake is a fake, and leaves out what no client sees: replicas, disks, quotas. What it gets wrong about groups and leaders
// is corrected here: leader epochs after a leader moved; members that wait in a join or a sync are not expired before that
// has ended, and those that died meanwhile a session later; those that are removed while they wait are told so; those of
// KIP-848 that do not give up their partitions in time are expired, and static ones that left and do not come back. What
// remains:
//
//   - There is no group.initial.rebalance.delay.ms: members that start together have several rebalances, not one.
//   - A static member of KIP-848 that comes back to a group in which something was decided meanwhile may get other
//     partitions than it had. While it is away, a group can be Stable.
//   - A fetch that waits for records at a broker may learn only at the end of its wait that the partition's leader has moved.
//   - A stopped broker is at once in no metadata, and others lead its partitions. The last broker is the controller, always.
//   - There are no followers to fetch from, and no log is truncated but by [Broker.Truncate].
package memkafka
