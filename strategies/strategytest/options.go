package strategytest

import "fmt"

// Option says what a strategy does not promise.
type Option func(*config)

type config struct {
	unordered bool
	key       func(i int) string // of the order; nil: there is one
	folds     bool
	keeps     int
	capacity  int
	ends      bool
}

// Unordered is for a strategy that hands messages on in any order.
func Unordered() Option { return func(c *config) { c.unordered = true } }

// PerKey is for a strategy that keeps the order of the messages with the same
// key. key returns that of the ith message.
func PerKey(key func(i int) string) Option { return func(c *config) { c.key = key } }

// Folds is for a strategy that puts messages together and cannot take one out
// again when its partition is lost, as Reduce.
func Folds() Option { return func(c *config) { c.folds = true } }

// Keeps is for a strategy that keeps up to n messages of each partition when it
// is flushed other than for a drain, because they are not complete, as Interval.
func Keeps(n int) Option { return func(c *config) { c.keeps = n } }

// Capacity says how many messages the strategy takes in at the most while its
// next step is busy. Defaults to 10,000.
func Capacity(n int) Option {
	if n <= 0 {
		panic(fmt.Sprintf("strategytest: Capacity: %d is not positive", n))
	}
	return func(c *config) { c.capacity = n }
}

// Ends is for a strategy that ends a pipeline: it settles everything itself,
// and build does not use the next step.
func Ends() Option { return func(c *config) { c.ends = true } }
