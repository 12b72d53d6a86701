package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
	"github.com/arroyo-go/arroyo/internal/realkafka"
)

// brokers are where a topic can be read, and a smaller one like it.
type brokers struct {
	name        string
	full, small bench.Source
	stop        func() error
}

// startBrokers starts a kfake for each topic, in processes of their own.
func startBrokers(_ context.Context, l bench.Layout) (brokers, error) {
	full, stopFull, err := bench.StartBroker(l)
	if err != nil {
		return brokers{}, err
	}
	l.Records /= 5
	small, stopSmall, err := bench.StartBroker(l)
	if err != nil {
		return brokers{}, errors.Join(err, stopFull())
	}
	return brokers{"kfake", full, small, func() error { return errors.Join(stopFull(), stopSmall()) }}, nil
}

// startKafka starts the real Kafka, with one topic for all.
func startKafka(ctx context.Context, l bench.Layout) (brokers, error) {
	kafka, err := realkafka.Open(ctx, realkafka.Options{})
	if err != nil {
		return brokers{}, err
	}
	s := bench.Source{Address: kafka.Brokers()[0], Layout: l}
	if err := fill(ctx, kafka, s); err != nil {
		return brokers{}, errors.Join(fmt.Errorf("fill the topic: %w", err), kafka.Close())
	}
	return brokers{"Kafka", s, s, kafka.Close}, nil
}

func fill(ctx context.Context, kafka *realkafka.Kafka, s bench.Source) error {
	if err := createTopic(ctx, kafka, s.Layout); err != nil {
		return err
	}
	return bench.Fill(ctx, s.Address, s.Layout)
}

func createTopic(ctx context.Context, kafka *realkafka.Kafka, l bench.Layout) error {
	client, err := kgo.NewClient(kafka.ClientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, int32(l.Partitions), 1, nil, bench.Topic)
	return err
}
