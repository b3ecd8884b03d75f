// Package sandboximage holds what the sandbox's image is built from and other programs must know: the pinned Deno.
package sandboximage

import (
	_ "embed"
	"strings"
)

//go:embed deno.version
var pins string

// DenoVersion is the version of Deno that CodeForge is built and tested with, e.g. "2.9.6".
func DenoVersion() string {
	for line := range strings.Lines(pins) {
		if version, ok := strings.CutPrefix(line, "version "); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}
