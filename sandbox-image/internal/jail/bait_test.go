package jail

import (
	"strings"
	"testing"
)

// TestBaitVariables: no token name is a variable of the bait, so no honest code reads the canary in its place.
// Promise: canaries
func TestBaitVariables(t *testing.T) {
	for _, name := range baitVariables {
		if name != strings.ToLower(name) {
			t.Errorf("%s may be a token name", name)
		}
	}
}
