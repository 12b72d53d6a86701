// Command postgres stores the records of a topic in PostgreSQL, each exactly
// once: the offsets are in the database too, and change in the same
// transaction. docs/events.md explains it.
//
//	psql -f schema.sql postgres://localhost/events
//	go run . -brokers localhost:9092 -topic events -postgres postgres://localhost/events
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	topic := flag.String("topic", "events", "topic to read")
	group := flag.String("group", "postgres", "consumer group")
	database := flag.String("postgres", "postgres://localhost/events", "the database, which has the tables of schema.sql")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*brokers, ","), *topic, *group, *database); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, brokers []string, topic, group, database string) error {
	db, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close()
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(kgo.SeedBrokers(brokers...)))
	if err != nil {
		return err
	}
	return loop(ctx, consumer, db)
}
