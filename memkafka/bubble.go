package memkafka

import (
	"bytes"
	"runtime"
)

// inBubble tells whether the calling goroutine belongs to a synctest bubble. The testing package has no way to ask that
// does not also wait, but the header of a goroutine's trace says it: "goroutine 21 [running, synctest bubble 1]:".
func inBubble() bool {
	var buf [256]byte
	header, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
