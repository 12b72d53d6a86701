package clients_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func TestSarama(t *testing.T) {
	broker := newBroker(t)
	skip(broker)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 20 * time.Millisecond // commits wait behind fetches, on the same connection
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond

	producer, err := sarama.NewSyncProducer([]string{broker.Addr()}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for i := range produced {
		m := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value(i))}
		if _, _, err := producer.SendMessage(m); err != nil {
			t.Fatal(err)
		}
	}

	member, err := sarama.NewConsumerGroup([]string{broker.Addr()}, group, config)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	handler := &saramaHandler{read: make(chan string), ctx: ctx}
	done := make(chan error, 1)
	go func() { done <- member.Consume(ctx, []string{topic}, handler) }()
	var read []string
	for len(read) < produced {
		select {
		case v := <-handler.read:
			read = append(read, v)
		case err := <-done:
			t.Fatalf("it ended after %d records: %v", len(read), err)
		}
	}
	broker.WaitCaughtUp(group, topic)
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check(t, broker, read)
}

type saramaHandler struct {
	ctx  context.Context
	read chan string
}

func (*saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			select {
			case h.read <- string(m.Value):
			case <-h.ctx.Done():
				return nil
			}
			session.MarkMessage(m, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}
