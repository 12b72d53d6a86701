package simulation

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
)

// library matches a function of arroyo or its strategies in a stack.
var library = regexp.MustCompile(`(?m)^github\.com/arroyo-go/arroyo(/strategies)?\.\S+`)

// checkLeft looks for goroutines of the library after everything has ended. A
// stack says which bubble a goroutine belongs to.
func (w *world) checkLeft() {
	stacks := make([]byte, 1<<20)
	own := string(stacks[:runtime.Stack(stacks, false)])
	bubble := regexp.MustCompile(`synctest bubble \d+`).FindString(own)
	if bubble == "" {
		w.violation("the simulation does not run in a bubble:\n%s", own)
		return
	}
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if !strings.Contains(head, bubble+",") && !strings.Contains(head, bubble+"]") {
			continue
		}
		if where := library.FindString(stack); where != "" {
			w.violation("I11: a goroutine is left in %s: %s", where, fmt.Sprintf("%.1500s", stack))
		}
	}
}
