// Package strategies has the steps that pipelines are composed of.
//
// A pipeline is written outermost first, each constructor taking the step
// behind it:
//
//	strategies.RunTask(strategies.JSON,
//		strategies.Filter(wanted,
//			strategies.ForEachBatch(1000, time.Second, insert)))
//
// A step calls its function from one goroutine at a time, in the order of the
// records of each partition. What a function's error means it says itself:
// arroyo.Invalid(err), the message can never be processed; arroyo.Drop, it is
// done with on purpose; anything else, the world is broken, which ends the
// run. A panic ends the run too, with its stack. Both name the step, the
// partition and the offset.
//
// Pipelines end in ForEach, ForEachBatch or Noop. What an ending step is done
// with is acked, and so committed: there is no step to commit.
//
// Constructors panic when the next step or a function is nil, or a number
// makes no sense: these are mistakes in the program.
package strategies
