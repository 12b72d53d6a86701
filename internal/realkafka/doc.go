// Package realkafka gives the integration tests a real Apache Kafka: one broker
// per test binary, started on loopback when the first test asks for it.
//
//	func TestMain(m *testing.M) { os.Exit(realkafka.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		kafka := realkafka.Start(t)
//		topic := kafka.Topic(t, 4)
//		client, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.ConsumeTopics(topic))...)
//		...
//	}
//
// The broker needs Java 17 or later and the jars that the script fetch of this
// folder puts into a cache. Without them [Start] skips the test and says why.
// These environment variables matter:
//
//   - ARROYO_TEST_BROKERS=host:port,host:port: use this Kafka, start none.
//   - ARROYO_REQUIRE_KAFKA=1: fail the tests that would be skipped for want of a
//     Kafka. For continuous integration, where a skipped test is an unseen one.
//   - ARROYO_KAFKA_LIBS: the folder of the jars, an absolute path.
//   - JAVA_HOME: the Java to use instead of the one in the PATH.
//
// As tests share the broker, they keep apart by names: [Kafka.Topic] and
// [Kafka.Group] return new ones. The broker's process is watched by one
// goroutine that stays until Main returns. A test that looks for leaked
// goroutines calls Start before it remembers the current ones, or ignores
// "github.com/arroyo-go/arroyo/internal/realkafka.(*process).run".
package realkafka
