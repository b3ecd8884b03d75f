package sandboximage

import (
	"regexp"
	"testing"
)

// TestDenoVersion: the pin is a full version.
func TestDenoVersion(t *testing.T) {
	if v := DenoVersion(); !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("deno.version pins %q", v)
	}
}
