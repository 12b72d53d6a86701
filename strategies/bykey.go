package strategies

import (
	"context"
	"hash/maphash"

	"github.com/arroyo-go/arroyo"
)

// RunTaskByKey calls task with up to n messages at the same time, but of
// messages with the same key with one at a time, in their order, and hands the
// results on as they come: so in order for each key, across partitions too, and
// in no order otherwise. A slow task holds up the messages with its key and no
// others.
//
// key is called on the lane's goroutine, once for each message. RecordKey is
// the usual one. Messages of equal keys are in order, whatever the key is: if
// records without a key need not be, let key make something up for them, their
// offset for example.
//
// Submit blocks, which is backpressure, only while all n are busy and there are
// about two keys each that could be worked on. Messages behind a busy key do not
// count; MaxInFlight bounds them. For the rest it is as RunTaskInParallel.
func RunTaskByKey[In, Out any, K comparable](n int, key func(arroyo.Message[In]) K, task func(context.Context, arroyo.Message[In]) (Out, error), next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	require("RunTaskByKey", "the key function is nil", key != nil)
	source := newActors[In, Out]()
	s := newPool("RunTaskByKey", n, task, source, next, opts)
	seed := maphash.MakeSeed()
	s.prepare = func(msgs []arroyo.Message[In]) (err error) {
		at := 0
		defer func() {
			if v := recover(); v != nil {
				err = panicked(s.step, msgs[at], v)
			}
		}()
		source.hashes = source.hashes[:0]
		for i := range msgs {
			at = i
			source.hashes = append(source.hashes, maphash.Comparable(seed, key(msgs[i])))
		}
		return nil
	}
	return s
}
