// Enrich adds to each visit of a web site the country that it came from. For
// that it asks an HTTP service, which takes its time; so it asks for up to 200
// visits at once.
//
//	go run ./docs/examples/enrich -brokers localhost:9092 -service http://localhost:8080/countries
//
// The topic is visits, and the results go to visits.enriched. The key of a
// record is the user, and the visits of a user stay in order: the service is
// asked for one of them at a time. A slow answer holds up this user and no
// other.
//
// A call that takes more than two seconds is given up. What may be otherwise the
// next time is tried again, for as long as it takes; if that happens while the
// program stops, the visit is left to the next run. An address that the service
// does not know makes a dead letter. Any other answer is a mistake of ours, bad
// credentials for example, and ends the program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
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

// Visit is the value of a record, as JSON; of an output, with the country.
type Visit struct {
	User    string `json:"user"`
	Address string `json:"address"`
	Page    string `json:"page"`
	Country string `json:"country,omitempty"`
}

// run enriches visits until ctx ends. Then it finishes what has begun, commits
// and leaves the group.
func run(ctx context.Context, s *service, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("enrich", []string{"visits"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(strategies.JSON,
		strategies.RunTaskByKey(200, strategies.RecordKey, s.enrich,
			strategies.Produce(consumer.Client(), output),
			strategies.Timeout(2*time.Second), // of each attempt
			strategies.Retry(strategies.RetryPolicy{If: mayPass})))
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "visits.dead"}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

// enrich is called by up to 200 goroutines.
func (s *service) enrich(ctx context.Context, m arroyo.Message[Visit]) (Visit, error) {
	visit := m.Payload
	country, err := s.country(ctx, visit.Address)
	if errors.Is(err, statusError(http.StatusNotFound)) {
		return visit, arroyo.Invalid(err)
	}
	visit.Country = country
	return visit, err
}

func output(_ context.Context, m arroyo.Message[Visit]) (*kgo.Record, error) {
	value, err := json.Marshal(m.Payload)
	if err != nil {
		return nil, arroyo.Invalid(err)
	}
	return strategies.Outgoing(m, "visits.enriched", value), nil
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	url := flag.String("service", "http://localhost:8080/countries", "URL of the service; the address is appended")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 200 // or most of the calls would dial
	s := &service{url: *url, client: &http.Client{Transport: transport}}
	if err := run(ctx, s, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
