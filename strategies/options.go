package strategies

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Option configures a step.
type Option func(*config)

type config struct {
	name string
	attempts
	maxSize *maxSize
}

// Name names the step in errors, logs and Status. Defaults to the step's kind
// and its function's name, as in "RunTask(orders.decode)".
func Name(name string) Option {
	if name == "" {
		panic("strategies: Name: the name is empty")
	}
	return func(c *config) { c.name = name }
}

// Timeout bounds each call of the step's function: the function's context ends
// after d. It has to honour that: a call that goes on is waited for. What a
// call returns once its time is over counts as usual, so an error ends the run,
// or is tried again if the step has a Retry. The context ends when the function
// returns, too.
//
// Only steps whose function returns an error take a Timeout. Defaults to none.
func Timeout(d time.Duration) Option {
	require("Timeout", fmt.Sprintf("%v is not positive", d), d > 0)
	return func(c *config) { c.timeout = d }
}

// configure applies a constructor's options. Its function may be nil.
func configure(kind string, f any, opts []Option) *config {
	c := &config{name: kind}
	if f != nil {
		c.name = fmt.Sprintf("%s(%s)", kind, funcName(f))
	}
	for _, opt := range opts {
		opt(c)
	}
	require(kind, "it takes no MaxSize", c.maxSize == nil || takesMaxSize[kind])
	require(kind, "it takes neither Retry nor Timeout, because its function returns no error",
		c.simple() || returnsError(f))
	c.step = arroyo.NewStep(c.name)
	return c
}

// funcName returns a function's name without the path of its package.
func funcName(f any) string {
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, "[") // type parameters
	return strings.TrimSuffix(name, "-fm")
}

func returnsError(f any) bool {
	if f == nil {
		return false
	}
	t := reflect.TypeOf(f)
	return t.NumOut() > 0 && t.Out(t.NumOut()-1) == reflect.TypeFor[error]()
}

// require panics if a constructor's argument is missing.
func require(kind, what string, there bool) {
	if !there {
		panic(fmt.Sprintf("strategies: %s: %s", kind, what))
	}
}
