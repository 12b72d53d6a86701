package memkafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactionTimeout is the longest that a broker allows by default.
const transactionTimeout = 15 * time.Minute

// ProduceTransaction appends the values to the topic as [Broker.Produce] does, in a transaction that is committed. Each
// partition that gets a value gets a control record behind it, the commit marker: it has an offset, and no client shows
// it. Without values it does nothing.
func (b *Broker) ProduceTransaction(topic string, values ...string) {
	b.t.Helper()
	if err := b.produceTransaction(topic, values, kgo.TryCommit); err != nil {
		b.fail("produce a transaction: %w", err)
	}
}

// ProduceAborted appends the values to the topic as [Broker.Produce] does, in a transaction that is aborted. They stay in
// the log, and so does a control record behind them in each partition that got one, the abort marker. Consumers with
// kgo.ReadCommitted skip them all; others, and without that option kgo is one, get the values. Without values it does
// nothing.
func (b *Broker) ProduceAborted(topic string, values ...string) {
	b.t.Helper()
	if err := b.produceTransaction(topic, values, kgo.TryAbort); err != nil {
		b.fail("produce an aborted transaction: %w", err)
	}
}

func (b *Broker) produceTransaction(topic string, values []string, how kgo.TransactionEndTry) error {
	tx, err := b.begin()
	if err != nil {
		return err
	}
	if err := b.produceValues(tx.sender, topic, stringValues(values)); err != nil {
		_ = tx.end(kgo.TryAbort) // err says it all
		return err
	}
	return tx.end(how)
}

// Transaction is a producer's transaction that goes on until it is committed or aborted. Until then its records hold up
// consumers with kgo.ReadCommitted: they get nothing that is behind the first of them in a partition. It is for one
// goroutine at a time.
type Transaction struct {
	broker *Broker
	sender *sender
	ended  atomic.Bool
	stop   func() bool // false if the broker ends it
	close  func()
}

// BeginTransaction starts a transaction. Commit or abort it: the broker aborts it after 15 minutes (of virtual time in a
// bubble), as Kafka does, and one that is open when the broker closes just ends.
func (b *Broker) BeginTransaction() *Transaction {
	b.t.Helper()
	tx, err := b.begin()
	if err != nil {
		b.fail("begin a transaction: %w", err)
	}
	return tx
}

// begin makes a client for each transaction. Closing the broker closes it, and waits for that.
func (b *Broker) begin() (*Transaction, error) {
	release, err := b.use()
	if err != nil {
		return nil, err
	}
	client, err := b.newOwnClient(
		kgo.TransactionalID(fmt.Sprintf("memkafka-%d", b.producer.transactions.Add(1))),
		kgo.TransactionTimeout(transactionTimeout),
	)
	if err != nil {
		release()
		return nil, err
	}
	tx := &Transaction{broker: b, sender: newSender(client)}
	tx.close = func() { client.Close(); release() }
	tx.stop = context.AfterFunc(b.ctx, tx.close)
	if err := client.BeginTransaction(); err != nil {
		tx.discard()
		return nil, err
	}
	return tx, nil
}

// Produce appends the values to the topic as [Broker.Produce] does, in the transaction.
func (tx *Transaction) Produce(topic string, values ...string) {
	tx.broker.t.Helper()
	err := tx.over()
	if err == nil {
		err = tx.broker.produceValues(tx.sender, topic, stringValues(values))
	}
	if err != nil {
		tx.broker.fail("produce in a transaction: %w", err)
	}
}

// ProduceRecords appends the records as [Broker.ProduceRecords] does, in the transaction.
func (tx *Transaction) ProduceRecords(records ...*kgo.Record) {
	tx.broker.t.Helper()
	err := tx.over()
	if err == nil {
		err = tx.broker.produceRecords(tx.sender, records)
	}
	if err != nil {
		tx.broker.fail("produce in a transaction: %w", err)
	}
}

// Commit commits the transaction: each partition that has a record of it gets a commit marker, and consumers with
// kgo.ReadCommitted go on. It fails if the transaction has ended.
func (tx *Transaction) Commit() {
	tx.broker.t.Helper()
	if err := tx.end(kgo.TryCommit); err != nil {
		tx.broker.fail("commit a transaction: %w", err)
	}
}

// Abort aborts the transaction: each partition that has a record of it gets an abort marker, and consumers with
// kgo.ReadCommitted go on behind its records. It fails if the transaction has ended.
func (tx *Transaction) Abort() {
	tx.broker.t.Helper()
	if err := tx.end(kgo.TryAbort); err != nil {
		tx.broker.fail("abort a transaction: %w", err)
	}
}

var errTransactionOver = errors.New("it was committed or aborted already: begin another one")

func (tx *Transaction) over() error {
	switch {
	case tx.broker.ctx.Err() != nil:
		return errClosed
	case tx.ended.Load():
		return errTransactionOver
	}
	return nil
}

func (tx *Transaction) end(how kgo.TransactionEndTry) error {
	if err := tx.over(); err != nil {
		return err
	}
	if !tx.ended.CompareAndSwap(false, true) {
		return errTransactionOver
	}
	defer tx.discard()
	ctx, cancel := context.WithTimeout(tx.broker.ctx, waitTimeout)
	defer cancel()
	if how == kgo.TryAbort {
		// What could not be produced is in the client's buffer still.
		if err := tx.sender.AbortBufferedRecords(ctx); err != nil {
			return tx.broker.why(ctx, err)
		}
	} else if err := tx.known(ctx); err != nil {
		return err
	}
	return tx.broker.why(ctx, tx.sender.EndTransaction(ctx, how))
}

// known waits until the client has noted which partitions it has produced to. Of a topic that it has only just looked up,
// kgo 1.22.3 sends the records first and notes the partitions then; and it aborts a transaction that has no partitions.
func (tx *Transaction) known(ctx context.Context) error {
	for topic, partition := range tx.sender.sent {
		if err := tx.broker.known(ctx, tx.sender, topic, partition); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Transaction) discard() {
	if tx.stop() {
		tx.close()
	}
}
