package memkafka

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Truncate makes a partition lose the end of its log, as Kafka does when a replica that lags behind is elected leader:
// the records at offset and above are gone, the next ones that are produced get their offsets, and there is a new leader
// epoch. Consumers that have read further are told: kgo returns a *kgo.ErrDataLoss. Groups keep what they have committed,
// which may be above the end now.
//
// A batch is lost as a whole, so the end may come to be below offset. What one call of [Broker.Produce] appends to a
// partition is a batch, or several: how many is not defined. Truncate fails if there is no such partition, if offset is
// not between the log's start and its end, or if the log has grown to more than one segment, a gigabyte.
func (b *Broker) Truncate(topic string, partition int32, offset int64) {
	b.t.Helper()
	if err := b.truncate(topic, partition, offset); err != nil {
		b.fail("truncate topic %q, partition %d: %w", topic, partition, err)
	}
}

// truncation is that a log was cut off at an offset, where a new leader epoch begins.
type truncation struct {
	epoch  int32
	offset int64
}

func (b *Broker) truncate(topic string, partition int32, offset int64) error {
	release, err := b.takeTurn() // not in the midst of what somebody produces
	if err != nil {
		return err
	}
	defer release()
	info, err := b.partition(topic, partition)
	if err != nil {
		return err
	}
	if offset < info.LogStartOffset || offset > info.HighWatermark {
		return fmt.Errorf("offset %d: the log has %d to %d", offset, info.LogStartOffset, info.HighWatermark)
	}
	id, err := b.topicID(topic)
	if err != nil {
		return err
	}
	cut, err := cutLog(b.cluster, topic, partition, offset)
	if err != nil {
		return err
	}
	b.tap.truncated(topicPartition{id, partition}, cut)
	b.tap.changes.happen()
	b.log.add("topic %q: partition %d is truncated to end at %d, in epoch %d", topic, partition, cut.offset, cut.epoch)
	return nil
}

// truncated notes where a leader epoch begins: kfake knows of epochs that have a batch only.
func (t *tap) truncated(at topicPartition, cut truncation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cuts[at] = append(t.cuts[at], cut)
}

// endOf returns where what was written in a leader epoch ends, in a log that ends at end.
func (t *tap) endOf(at topicPartition, epoch int32, end int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cut := range t.cuts[at] {
		if cut.epoch > epoch {
			end = min(end, cut.offset)
		}
	}
	return end
}

// cutLog does what kfake has no method for. It reaches into it, on the goroutine that owns all of its state.
func cutLog(cluster *kfake.Cluster, topic string, partition int32, offset int64) (cut truncation, err error) {
	admin, err := adminOf(cluster)
	if err != nil {
		return cut, err
	}
	done := make(chan struct{})
	admin <- func() {
		defer close(done)
		defer notKnown(&err)
		logs := inside(inside(reflect.ValueOf(cluster).Elem(), "data"), "tps")
		log := logs.MapIndex(reflect.ValueOf(topic)).MapIndex(reflect.ValueOf(partition))
		cut, err = cutPartition(log.Elem(), offset)
	}
	<-done
	return cut, err
}

// adminOf returns the channel by which kfake's own methods work on its state.
func adminOf(cluster *kfake.Cluster) (admin chan<- func(), err error) {
	defer notKnown(&err)
	return inside(reflect.ValueOf(cluster).Elem(), "adminCh").Interface().(chan func()), nil
}

// notKnown makes an error of the panic that kfake is not what it was.
func notKnown(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("this version of kfake is not known: %v", v)
	}
}

// cutPartition cuts one of kfake's logs.
func cutPartition(log reflect.Value, offset int64) (truncation, error) {
	segments := inside(log, "segments")
	if segments.Len() > 1 {
		return truncation{}, errors.New("its log has more than one segment")
	}
	cut := truncation{offset: offset}
	if segments.Len() == 1 {
		batches, size := inside(segments.Index(0), "index"), inside(log, "nbytes")
		keep := batches.Len()
		for ; keep > 0; keep-- {
			batch := batches.Index(keep - 1)
			first := inside(batch, "firstOffset").Int()
			if first+inside(batch, "lastOffsetDelta").Int() < offset {
				break
			}
			cut.offset = min(cut.offset, first)
			size.SetInt(size.Int() - inside(batch, "nbytes").Int())
		}
		batches.SetLen(keep)
	}
	inside(log, "highWatermark").SetInt(cut.offset)

	stable, open := cut.offset, inside(log, "uncommittedPIDs")
	for _, producer := range open.MapKeys() {
		if first := open.MapIndex(producer).Int(); first >= cut.offset {
			open.SetMapIndex(producer, reflect.Value{})
		} else {
			stable = min(stable, first)
		}
	}
	inside(log, "lastStableOffset").SetInt(stable)

	aborted := inside(log, "abortedTxns")
	keep := aborted.Len()
	for keep > 0 && inside(aborted.Index(keep-1), "lastOffset").Int() >= cut.offset {
		keep--
	}
	aborted.SetLen(keep)

	epoch := inside(log, "epoch")
	epoch.SetInt(epoch.Int() + 1)
	cut.epoch = int32(epoch.Int())
	return cut, nil
}

// inside returns a field of a struct, to read and to set, though it is not exported.
func inside(v reflect.Value, field string) reflect.Value {
	f := v.FieldByName(field)
	if !f.IsValid() {
		panic("there is no " + field)
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}
