package realkafka

import (
	"os"
	"strings"
)

const (
	envBrokers  = "ARROYO_TEST_BROKERS"
	envRequire  = "ARROYO_REQUIRE_KAFKA"
	envLibs     = "ARROYO_KAFKA_LIBS"
	envJavaHome = "JAVA_HOME"
	envCache    = "XDG_CACHE_HOME"
)

// externalBrokers returns the addresses in ARROYO_TEST_BROKERS, none if unset.
func externalBrokers() []string {
	var brokers []string
	for b := range strings.SplitSeq(os.Getenv(envBrokers), ",") {
		if b = strings.TrimSpace(b); b != "" {
			brokers = append(brokers, b)
		}
	}
	return brokers
}

// kafkaRequired tells whether a missing Kafka is to fail the tests.
func kafkaRequired() bool {
	return os.Getenv(envRequire) == "1"
}
