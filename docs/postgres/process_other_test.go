//go:build !linux

package main

import "syscall"

// processAttributes has nothing to offer here.
func processAttributes(string) (*syscall.SysProcAttr, error) { return nil, nil }
