// Package memkafka is a Kafka broker in memory, for tests of code that consumes from Kafka with franz-go.
//
// The client under test is the real one and speaks the real protocol; only the broker is a fake (franz-go's kfake), and
// it is reached over a network that is a pair of buffers. No port is opened, no container started, nothing is written
// to disk. Inside a [testing/synctest] bubble time is virtual: a session timeout of 45 s costs a few milliseconds.
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
// # In a bubble
//
//   - Make the broker and all clients inside the bubble, and close the clients before the test function returns. The
//     broker closes itself. A goroutine that is left over ends the test with a "deadlock" panic.
//   - Do not consume records compressed with zstd: franz-go's decoder has a finalizer that touches a channel of the
//     bubble after its end, and that kills the test binary. Produce with another codec, or none.
//   - Time stands still while a goroutine waits for a mutex. franz-go holds mutexes over requests in a few places,
//     overlapping commits for one; if a test hangs there, run it with -tags synctests, which franz-go understands.
//   - Use [testing/synctest.Wait] before you look at what another goroutine wrote.
package memkafka
