package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/arroyo-go/arroyo"
)

// databaseTime bounds each piece of work in the database. Without a bound one
// that hangs would keep the loop from ending.
const databaseTime = 20 * time.Second

// noRow is the offset of a partition that the database does not know yet. It
// starts where the consumer's start policy says.
const noRow = -1

// loop stores records in PostgreSQL, and in the same transaction how far it is,
// until ctx ends. What Kafka has as the group's offsets plays no part, so a
// record is stored once however often it is delivered.
func loop(ctx context.Context, consumer *arroyo.Consumer, db *pgxpool.Pool) error {
	next := make(map[arroyo.Epoch]int64) // what the database should have
	for ev := range consumer.Events(ctx) {
		// When ctx ends, what was fetched is stored all the same.
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTime)
		var err error
		switch ev := ev.(type) {
		case *arroyo.Assigned:
			err = begin(work, db, ev, next)
		case *arroyo.Fetched:
			err = store(work, db, ev, next[ev.Epoch])
			if errors.Is(err, errMoved) {
				// Somebody else moved the offset: this member is cut off
				// and does not know yet, or the one before it was. The
				// partition begins anew if it is still ours, with another
				// Assigned; if not, there is nothing left to do.
				log.Printf("%s: %v", ev.Epoch, err)
				err = consumer.Seek(map[arroyo.Epoch]int64{ev.Epoch: ev.Next})
				if errors.Is(err, arroyo.ErrFenced) {
					err = nil
				}
			} else if err == nil {
				next[ev.Epoch] = ev.Next
			}
		case *arroyo.Revoked:
			forget(next, ev.Epochs)
		case *arroyo.Lost:
			forget(next, ev.Epochs)
		case *arroyo.Failed:
			log.Print(ev.Err)
			if ev.Fatal {
				err = ev.Err
			}
		}
		cancel()
		if err != nil {
			return err // the next run begins where the database is
		}
	}
	return nil
}

// begin makes new epochs start where the database is.
func begin(ctx context.Context, db *pgxpool.Pool, ev *arroyo.Assigned, next map[arroyo.Epoch]int64) error {
	for _, e := range ev.Epochs {
		var at int64
		err := db.QueryRow(ctx, `SELECT next FROM offsets WHERE topic = $1 AND partition = $2`, e.Topic, e.Number).Scan(&at)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			next[e] = noRow
			continue
		case err != nil:
			return err
		}
		next[e] = at
		if err := ev.StartAt(e, at); err != nil {
			return err
		}
	}
	return nil
}

func forget(next map[arroyo.Epoch]int64, epochs []arroyo.Epoch) {
	for _, e := range epochs {
		delete(next, e)
	}
}

// errMoved says that the database is not where this member believes it to be.
var errMoved = errors.New("another member has stored records of this partition; nothing was stored")

// store inserts records and moves their partition's offset from expected to
// behind them: both or, with errMoved, neither.
func store(ctx context.Context, db *pgxpool.Pool, ev *arroyo.Fetched, expected int64) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// The offset comes first: the row is locked, so whoever else is at
		// this partition waits here, and then finds that it has moved.
		move := `UPDATE offsets SET next = $3 WHERE topic = $1 AND partition = $2 AND next = $4`
		args := []any{ev.Epoch.Topic, ev.Epoch.Number, ev.Next, expected}
		if expected == noRow {
			move = `INSERT INTO offsets (topic, partition, next) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
			args = args[:3]
		}
		moved, err := tx.Exec(ctx, move, args...)
		if err != nil {
			return err
		}
		if moved.RowsAffected() == 0 {
			return errMoved
		}
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"records"}, []string{"topic", "partition", "pos", "key", "value"},
			pgx.CopyFromSlice(len(ev.Records), func(i int) ([]any, error) {
				r := ev.Records[i]
				return []any{r.Topic, r.Partition, r.Offset, r.Key, r.Value}, nil
			}))
		return err
	})
}
