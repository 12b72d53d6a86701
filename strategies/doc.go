// Package strategies has the steps that pipelines are composed of.
//
// A pipeline is written outermost first, each constructor taking the step
// behind it:
//
//	strategies.RunTask(strategies.JSON,
//		strategies.Filter(wanted,
//			strategies.ForEachBatch(1000, time.Second, insert)))
//
// # The steps
//
// One message at a time: [RunTask] and [Filter]; several at once, in order:
// [RunTaskInParallel]; in order per key: [RunTaskByKey]; in no order:
// [RunTaskUnordered]. One to many and many to one: [Unfold], [Batch],
// [Unbatch], [Reduce], [Accumulate], [Interval]. Ways: [Route],
// [RouteByHeader], [RouteByKey], [Queue]. Beside the way: [Healthcheck].
//
// Pipelines end in [ForEach], [ForEachBatch], [Produce] or [Noop]. What an
// ending step is done with is acked, and so committed: there is no step to
// commit.
//
// [JSON] and [Plain] make tasks of functions, [RecordKey] and [Outgoing] are
// for keys and outputs.
//
// # What a function's error means
//
// The function says it itself: arroyo.Invalid(err), the message can never be
// processed; arroyo.Drop, it is done with on purpose; anything else, the world
// is broken, which ends the run, after what [Retry] says. A panic ends the run
// too, with its stack. Both name the step, the partition and the offset.
//
// But for the parallel steps, a step calls its function from one goroutine at a
// time, in the order of the records of each partition. [Name], [Retry] and
// [Timeout] are options of every step with a function.
//
// Constructors panic when the next step or a function is nil, or a number
// makes no sense: these are mistakes in the program.
//
// Package strategytest checks that a step of one's own keeps the contract.
package strategies
