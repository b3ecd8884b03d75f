// Package sandboximage holds what the sandbox's image is built from and other programs must know: the pinned Deno, and
// the pinned compiler of TypeScript.
package sandboximage

import (
	_ "embed"
	"strings"
)

var (
	//go:embed deno.version
	deno string
	//go:embed typescript.version
	typescript string
)

// DenoVersion is the version of Deno that CodeForge is built and tested with, e.g. "2.9.6".
func DenoVersion() string { return pinned(deno) }

// TypeScriptVersion is the version of TypeScript's compiler that CodeForge is built and tested with, e.g. "7.0.2".
func TypeScriptVersion() string { return pinned(typescript) }

// pinned is the version in a file of pins.
func pinned(pins string) string {
	for line := range strings.Lines(pins) {
		if version, ok := strings.CutPrefix(line, "version "); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}
