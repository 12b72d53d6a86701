package main

import (
	"context"
	"errors"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// loop handles records, partition by partition in order, and commits what is
// done, until ctx ends or a record fails. The consumer is closed then.
func loop(ctx context.Context, consumer *arroyo.Consumer, handle func(*kgo.Record) error) (err error) {
	for ev := range consumer.Events(ctx) {
		switch ev := ev.(type) {
		case *arroyo.Fetched:
			done := map[arroyo.Epoch]int64{ev.Epoch: ev.Next}
			for _, r := range ev.Records {
				if err = handle(r); err != nil {
					done[ev.Epoch] = r.Offset // the next run begins with it
					break
				}
			}
			// What is done is committed, also if ctx has ended meanwhile.
			committed := consumer.Commit(context.WithoutCancel(ctx), done)
			if errors.Is(committed, arroyo.ErrFenced) {
				committed = nil // others go on from the last commit
			}
			if err = errors.Join(err, committed); err != nil {
				return err
			}
		case *arroyo.Revoked, *arroyo.Lost:
			// What was fetched is done and committed. The next turn releases it.
		case *arroyo.Failed:
			if ev.Fatal {
				return ev.Err
			}
			log.Print(ev.Err) // the consumer goes on trying
		}
	}
	return nil
}
