// Package chain has the test of a chained job on the real Kafka: a topic that
// a group reads and writes to the next topic, three times in a row. The members
// are processes of their own, which join and leave and are killed; connections
// are cut and the broker is restarted while 200,000 records pass. Then all
// topics are read, and a checker that knows nothing of Arroyo names what was
// lost, out of order, or there twice without a reason.
//
//	internal/realkafka/fetch
//	ARROYO_REQUIRE_KAFKA=1 go test -v ./internal/chain
package chain
