package memkafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const (
	maxBrokers    = 100
	maxPartitions = 100_000
)

// Option configures a broker at [New] or [Open].
type Option func(*config) error

type config struct {
	brokers int
	topics  []topicConfig
	sasl    *plain.Auth

	loopback bool // open TCP ports
	port     int  // the first of them; 0 for any
}

type topicConfig struct {
	name       string
	partitions int
}

func newConfig(opts []Option) (*config, error) {
	c := &config{brokers: 1}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("an option is nil")
		}
		if err := opt(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Topic creates a topic with that many partitions, at least 1. With several brokers, partition p is led by broker
// p modulo their number.
func Topic(name string, partitions int) Option {
	return func(c *config) error {
		if err := checkTopic(name, partitions); err != nil {
			return fmt.Errorf("option Topic: %w", err)
		}
		c.topics = append(c.topics, topicConfig{name, partitions})
		return nil
	}
}

// Brokers sets how many brokers the cluster has, from 1 to 100. Defaults to 1.
func Brokers(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxBrokers {
			return fmt.Errorf("option Brokers: %d brokers: give 1 to %d", n, maxBrokers)
		}
		c.brokers = n
		return nil
	}
}

// SASL makes the brokers ask for this user and password, by the mechanism PLAIN. [Broker.ClientOptions] does not include
// them: a client that does not give them by kgo.SASL, or gives others, is refused. Rivals know them.
func SASL(user, password string) Option {
	return func(c *config) error {
		if user == "" || password == "" {
			return errors.New("option SASL: give a user and a password")
		}
		c.sasl = &plain.Auth{User: user, Pass: password}
		return nil
	}
}

func checkTopic(name string, partitions int) error {
	switch {
	case name == "":
		return errors.New("a topic needs a name")
	case !legalTopic(name):
		return fmt.Errorf("topic %q: Kafka allows up to 249 letters, digits, '.', '_' and '-' in a name", name)
	case partitions < 1, partitions > maxPartitions:
		return fmt.Errorf("topic %q with %d partitions: give 1 to %d", name, partitions, maxPartitions)
	}
	return nil
}
