//go:build race

package testkit

// Race means that the race detector is on, which takes several times the memory.
const Race = true
