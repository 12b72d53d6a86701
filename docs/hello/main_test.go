package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// The README shows this program, letter for letter.
func TestREADMEShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, append([]byte("```go\n"), append(program, "```\n"...)...)) {
		t.Error("README.md does not have docs/hello/main.go in it as it is")
	}
}

func TestProgramWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		stop := memkafka.Start(t, func(ctx context.Context) error {
			return ingest(ctx, append(broker.ClientOptions(), kgo.ClientID("hello"))...)
		})
		broker.Produce("events", `{"kind":"click","user":1}`, `{"kind":"heartbeat"}`, `{"kind":"view","user":2}`)
		broker.WaitCommitted("ingest", "events", 3)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
