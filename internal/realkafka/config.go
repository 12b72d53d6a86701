package realkafka

import (
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed log4j2.properties
var log4jConfig []byte

// brokerConfig returns the properties of a broker that is its own controller.
// Which protocols groups may use is left to Kafka's defaults: the classic and
// the consumer protocol both.
func brokerConfig(dataDir string, p ports, override map[string]string) map[string]string {
	config := map[string]string{
		"process.roles":             "broker,controller",
		"node.id":                   "1",
		"controller.quorum.voters":  "1@" + p.controller,
		"controller.listener.names": "CONTROLLER",
		"listeners":                 "PLAINTEXT://" + p.broker + ",CONTROLLER://" + p.controller,
		"advertised.listeners":      "PLAINTEXT://" + p.broker,
		"log.dirs":                  filepath.ToSlash(dataDir),

		// A topic that a test did not create is a mistake of that test.
		"auto.create.topics.enable": "false",
		"num.partitions":            "1",

		// A test need not wait for members that will not come.
		"group.initial.rebalance.delay.ms": "0",
		// Tests of dead members use short sessions.
		"group.min.session.timeout.ms": "1000",

		// There is one broker, so nothing has a second replica. Fewer partitions
		// than the defaults of 50 make the first group, the first transaction
		// and a restart quicker.
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "8",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "8",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.num.partitions":     "8",

		// The default is a quarter of the heap.
		"log.cleaner.dedupe.buffer.size": "4194304",
	}
	maps.Copy(config, override)
	return config
}

// propertyEscapes are for what Java's properties files give a meaning to.
var propertyEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

// properties writes a configuration in the format of Java's properties files.
func properties(config map[string]string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&b, "%s=%s\n", name, propertyEscapes.Replace(config[name]))
	}
	return []byte(b.String())
}
