package clients_test

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func TestKafkaGo(t *testing.T) {
	broker := newBroker(t) // without skip: kafka-go hands control records to its user, as if they were others
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	writer := &kafka.Writer{
		Addr:         kafka.TCP(broker.Addr()),
		Topic:        topic,
		Balancer:     &kafka.RoundRobin{},
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond,
		Transport:    &kafka.Transport{}, // of its own, so that its connections end with the test
	}
	defer writer.Close()
	var messages []kafka.Message
	for i := range produced {
		messages = append(messages, kafka.Message{Value: []byte(value(i))})
	}
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		t.Fatal(err)
	}

	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{broker.Addr()},
		GroupID:           group,
		Topic:             topic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           100 * time.Millisecond,
		HeartbeatInterval: 100 * time.Millisecond,
	})
	defer reader.Close()
	var read []string
	for len(read) < produced {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", len(read), err)
		}
		read = append(read, string(m.Value))
		if err := reader.CommitMessages(ctx, m); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	check(t, broker, read)
}
