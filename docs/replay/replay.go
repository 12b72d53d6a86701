package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// replayer reads the dead letters of a topic and produces their originals.
type replayer struct {
	from   string         // the topic of dead letters
	topic  string         // for originals that do not tell theirs
	group  string         // whose committed offsets say what was replayed
	reason *regexp.Regexp // nil: any
	dryRun bool           // tell, but neither produce nor commit
	fresh  bool           // give originals the time of now
	out    io.Writer

	replayed, passedOver, unreadable int
}

// run replays what is there when it begins, and no more: what is rejected once
// again comes back as a letter, and would go round for ever. At an error, or
// when ctx ends, it stops; the next run goes on where this one has committed,
// so an original may be produced twice, but none is left out.
func (r *replayer) run(ctx context.Context, opts ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer(r.group, []string{r.from},
		arroyo.ClientOptions(
			kgo.RecordPartitioner(kgo.ManualPartitioner()), // into the partitions that they came from
			kgo.AllowIdempotentProduceCancellation()),      // else ctx does not end an attempt
		arroyo.ClientOptions(opts...),
		arroyo.ResetOutOfRange(arroyo.StartEarliest())) // letters expire
	if err != nil {
		return err
	}
	defer consumer.Close()
	left, err := r.left(ctx, consumer.Client())
	if err != nil || len(left) == 0 {
		return err
	}
	for ev := range consumer.Events(ctx) {
		switch ev := ev.(type) {
		case *arroyo.Fetched:
			end, ok := left[ev.Epoch.Number]
			if !ok {
				continue
			}
			next := min(ev.Next, end)
			originals := r.originals(ev.Records, next)
			if !r.dryRun {
				if err := consumer.Client().ProduceSync(ctx, originals...).FirstErr(); err != nil {
					return fmt.Errorf("produce the originals of %s before offset %d: %w", ev.Epoch.Partition, next, err)
				}
				err := consumer.Commit(context.WithoutCancel(ctx), map[arroyo.Epoch]int64{ev.Epoch: next})
				if err != nil && !errors.Is(err, arroyo.ErrFenced) { // fenced: it is read again
					return err
				}
			}
			r.replayed += len(originals)
			if next == end {
				delete(left, ev.Epoch.Number)
			}
		case *arroyo.Failed:
			if ev.Fatal {
				return ev.Err
			}
			fmt.Fprintln(r.out, ev.Err) // the consumer goes on trying
		}
		if len(left) == 0 {
			return nil
		}
	}
	return ctx.Err()
}

// left returns the ends of the partitions that have letters which the group has
// not replayed.
func (r *replayer) left(ctx context.Context, client *kgo.Client) (map[int32]int64, error) {
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, r.from)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, r.from)
	if err != nil {
		return nil, err
	}
	committed, err := admin.FetchOffsets(ctx, r.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = nil // the first time
	}
	if err = errors.Join(err, starts.Error(), ends.Error(), committed.Error()); err != nil {
		return nil, err
	}
	left := make(map[int32]int64)
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(r.from, end.Partition)
		begin := start.Offset
		if done, ok := committed.Lookup(r.from, end.Partition); ok {
			begin = max(begin, done.At)
		}
		if begin < end.Offset {
			left[end.Partition] = end.Offset
		}
	})
	return left, nil
}

// originals returns what is to be produced of letters before an offset, and
// tells of each of them.
func (r *replayer) originals(letters []*kgo.Record, before int64) (originals []*kgo.Record) {
	for _, letter := range letters {
		if letter.Offset >= before {
			break
		}
		tell := func(what string, args ...any) {
			fmt.Fprintf(r.out, "%s/%d offset %d: %s\n", letter.Topic, letter.Partition, letter.Offset, fmt.Sprintf(what, args...))
		}
		original, origin, err := arroyo.ReadDeadLetter(letter)
		if err == nil && original.Topic == "" {
			if original.Topic = r.topic; original.Topic == "" {
				err = errors.New("it does not tell the topic that it came from: give one")
			}
		}
		switch {
		case err != nil:
			r.unreadable++
			tell("left: %v", err)
			continue
		case r.reason != nil && !r.reason.MatchString(origin.Reason):
			r.passedOver++
			continue
		case r.fresh:
			original.Timestamp = time.Time{}
		}
		tell("%s/%d offset %d: %s", original.Topic, origin.Partition.Number, origin.Offset, origin.Reason)
		originals = append(originals, original)
	}
	return originals
}
