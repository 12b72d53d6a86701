package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// RunTaskInParallel calls task with up to n messages at the same time, and
// hands the results on in the order of each partition's messages. It is for
// tasks that wait, for a server say, and for those that compute more than one
// core can.
//
// The work is shared: whichever of the n goroutines is free takes the next
// message, so a slow one holds up no other task. What holds back is order: the
// results of a partition wait for the oldest that is not there yet, and
// MaxInFlight bounds how many do. Other partitions go on meanwhile.
// RunTaskByKey and RunTaskUnordered promise less and wait less.
//
// Submit blocks, which is backpressure, only while all n are busy and about two
// messages each wait for them; more, if a task takes less than 0.1 ms. When a
// partition is drained, what no task has begun is returned, and what has begun
// is finished. A task that fails ends the run, and no result of its partition
// from behind it is handed on.
//
// task is called from several goroutines. Its context ends when the message's
// epoch does. The next step is called from one goroutine at a time, as always.
func RunTaskInParallel[In, Out any](n int, task func(context.Context, arroyo.Message[In]) (Out, error), next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	s := newPool("RunTaskInParallel", n, task, new(fifo[In, Out]), next, opts)
	s.ordered = true
	return s
}

// RunTaskUnordered is RunTaskInParallel, but hands each result on as soon as it
// is there: nothing waits for a slow task. Offsets are committed up to the
// oldest message that is not settled all the same.
func RunTaskUnordered[In, Out any](n int, task func(context.Context, arroyo.Message[In]) (Out, error), next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	return newPool("RunTaskUnordered", n, task, new(fifo[In, Out]), next, opts)
}
