package main

import (
	"context"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const franz = "github.com/twmb/franz-go"

// ours are the bare loop written with franz-go, which all are compared with,
// and Arroyo.
func ours() []peer {
	of := func(name, variant, module string, reader func(bench.Cost) bench.Reader) peer {
		return peer{name: name, variant: variant, module: module,
			read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
				return reader(j.Cost).Read(ctx, j.source(), j.Group)
			}}
	}
	return []peer{
		of("franz-go", "bare loop", franz, bench.Bare),
		of("arroyo", defaults, "", bench.Shared),
		of("arroyo", "partitioned", "", bench.Partitioned),
		of("arroyo", "RecycleRecords", "", bench.Recycling),
	}
}
