package strategies

import (
	"fmt"
	"reflect"

	"github.com/arroyo-go/arroyo"
)

// MaxSize bounds a batch by more than the number of its members: by bytes, say.
// size says how large a message is, in whatever unit limit is in. A message
// that would make a batch larger than limit begins the next one; one that is
// larger by itself is a batch of its own.
//
// Batch, ForEachBatch and Reduce take it, and it comes on top of their number
// of members. size may be called more than once for a message, is called on the
// lane's goroutine, and must not be negative. Defaults to no bound.
func MaxSize[T any](limit int, size func(arroyo.Message[T]) int) Option {
	require("MaxSize", fmt.Sprintf("a limit of %d is not positive", limit), limit > 0)
	require("MaxSize", "the function is nil", size != nil)
	return func(c *config) { c.maxSize = &maxSize{limit, size} }
}

type maxSize struct {
	limit int
	of    any // a func(arroyo.Message[T]) int
}

// takesMaxSize are the kinds of steps that can do something with it.
var takesMaxSize = map[string]bool{"Batch": true, "ForEachBatch": true, "Reduce": true}

// limits say when there is enough.
type limits[T any] struct {
	count int
	size  int
	of    func(arroyo.Message[T]) int // nil: size is no limit
}

func limitsOf[T any](kind string, count int, c *config) limits[T] {
	require(kind, fmt.Sprintf("a size of %d is not positive", count), count > 0)
	l := limits[T]{count: count}
	if m := c.maxSize; m != nil {
		of, ok := m.of.(func(arroyo.Message[T]) int)
		require(kind, fmt.Sprintf("the function of MaxSize is a %T, but the messages are %v", m.of, reflect.TypeFor[arroyo.Message[T]]()), ok)
		l.size, l.of = m.limit, of
	}
	return l
}
