// Package disarm switches single defences off. No product code imports it: package armed adds it to the programs that it
// arms.
package disarm

import (
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable with the names of the defences to switch off, separated by commas. Unit controls
// set it.
const Variable = "CODEFORGE_DISARM"

// File has the same list if Variable is not set, because daemons get few variables. It is on a file system that only the
// namespaces of the end-to-end tests have.
const File = "/mnt/disarm"

// inFile is read before the process can leave its mount namespace.
var inFile, _ = os.ReadFile(File)

// Off reports whether a defence is switched off.
func Off(name string) bool {
	list, set := os.LookupEnv(Variable)
	if !set {
		list = string(inFile)
	}
	return slices.Contains(strings.Split(list, ","), name)
}
