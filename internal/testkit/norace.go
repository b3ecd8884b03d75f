//go:build !race

package testkit

// Race says that the race detector is on, which takes several times the memory.
const Race = false
