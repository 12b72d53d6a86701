//go:build !cgo

package main

func confluents() []peer { return nil }

// missingPeers has a line for each library that is not compiled in.
func missingPeers() []string {
	return []string{"confluent-kafka-go: it needs cgo: build with CGO_ENABLED=1 and a C compiler"}
}
