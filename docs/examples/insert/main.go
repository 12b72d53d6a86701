// Insert keeps a search index up to date: it reads products and writes them to
// Elasticsearch or OpenSearch, 500 in a request, or what there is of them after
// two seconds.
//
//	go run ./docs/examples/insert -brokers localhost:9092 -index http://localhost:9200/products
//
// The index answers for each document of a request, and so the rows of a batch
// fare differently. One that the index cannot hold is rejected by itself: it is
// written to the topic products.dead, with the reason, and the others are not
// affected. Those that the index has no time for are sent again, without those
// that are done. If the index cannot be reached, the consumer waits for it.
//
// A row is committed when it has its verdict, so after a crash some come again.
// That does no harm, and neither does sending again: the version of a document
// is the offset of its record, and the index keeps the highest. A product's
// records have the same key, and so are in one partition, whose offsets rise.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Product is the value of a record, as JSON.
type Product struct {
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

// run keeps the index up to date until ctx ends. Then it finishes the batch in
// hand, commits and leaves the group.
func run(ctx context.Context, x *index, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("search", []string{"products"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(strategies.JSON, // what does not decode is rejected
		strategies.ForEachBatch(500, 2*time.Second, x.insert,
			strategies.Timeout(30*time.Second),          // for each attempt,
			strategies.Retry(strategies.RetryPolicy{}))) // of which there is no end
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "products.dead", MaxConsecutive: 1000}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

// insert writes the rows, and gives each its verdict. If it returns an error it
// is called again, with the rows that have none.
func (x *index) insert(ctx context.Context, rows []arroyo.Message[Product]) error {
	answers, err := x.bulk(ctx, rows)
	if err != nil {
		return err
	}
	left := 0
	for i, row := range rows {
		switch answer := answers[i]; {
		case answer.Status < 300:
			row.Ack()
		case answer.Status == http.StatusConflict: // a later version is there
			row.Ack()
		case answer.passes():
			left++
		default:
			row.Reject(fmt.Errorf("the index refused it: %s", answer.Error.Reason))
		}
	}
	if left > 0 {
		return fmt.Errorf("the index had no time for %d of %d documents", left, len(rows))
	}
	return nil
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	url := flag.String("index", "http://localhost:9200/products", "URL of the index")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	x := &index{url: *url, client: http.DefaultClient}
	if err := run(ctx, x, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
