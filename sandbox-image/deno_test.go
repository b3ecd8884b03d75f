package sandboximage

import (
	"regexp"
	"testing"
)

// TestPins: the pins are full versions.
func TestPins(t *testing.T) {
	for _, v := range []string{DenoVersion(), TypeScriptVersion()} {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
			t.Errorf("pins %q", v)
		}
	}
}
