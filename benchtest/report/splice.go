package main

import (
	"errors"
	"strings"
)

const (
	beginMarker = "<!-- begin: written by go run ./benchtest/report, do not edit -->\n"
	endMarker   = "<!-- end -->\n"
)

var errNoMarkers = errors.New("it needs the lines " + strings.TrimSpace(beginMarker) + " and " + strings.TrimSpace(endMarker) + ", each once and in this order")

// splice returns a page with what is between its markers replaced.
func splice(page, with string) (string, error) {
	before, rest, ok := strings.Cut(page, beginMarker)
	_, after, ok2 := strings.Cut(rest, endMarker)
	if !ok || !ok2 || strings.Contains(before+after, endMarker) || strings.Contains(after, beginMarker) {
		return "", errNoMarkers
	}
	return before + beginMarker + with + endMarker + after, nil
}
