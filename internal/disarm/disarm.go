//go:build !disarm

// Package disarm switches single defences off, so that a test can show that the attacks they stop succeed without them:
// a check that cannot fail is no check.
//
// Only a program built with the tag "disarm" can do that; no shipped one is. In every other build Off and Variable are
// constantly false, and the compiler leaves the branches out: checks are unconditional code.
package disarm

// Off is false.
func Off(string) bool { return false }

// Variable is false.
func Variable(string) bool { return false }
