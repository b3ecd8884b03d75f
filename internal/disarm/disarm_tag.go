//go:build disarm

// Package disarm, under its build tag, switches off the defences that CODEFORGE_DISARM names: for tests alone.
package disarm

import (
	"os"
	"slices"
	"strings"
)

// variable is a list of names, separated by commas.
const variable = "CODEFORGE_DISARM"

// Off reports whether a defence is switched off.
func Off(name string) bool { return slices.Contains(strings.Split(os.Getenv(variable), ","), name) }

// Variable reports whether an environment variable is the one that Off reads: daemons hand it to each other.
func Variable(name string) bool { return name == variable }
