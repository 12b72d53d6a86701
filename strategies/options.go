package strategies

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/arroyo-go/arroyo"
)

// Option configures a step.
type Option func(*config)

type config struct {
	name string
	step *arroyo.Step
}

// Name names the step in errors and logs. Defaults to the step's kind and its
// function's name, as in "RunTask(orders.decode)".
func Name(name string) Option {
	if name == "" {
		panic("strategies: Name: the name is empty")
	}
	return func(c *config) { c.name = name }
}

func configure(kind string, f any, opts []Option) config {
	c := config{name: kind}
	if f != nil {
		c.name = fmt.Sprintf("%s(%s)", kind, funcName(f))
	}
	for _, opt := range opts {
		opt(&c)
	}
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

// require panics if a constructor's argument is missing.
func require(kind, what string, there bool) {
	if !there {
		panic(fmt.Sprintf("strategies: %s: %s", kind, what))
	}
}
