package secretvalues

import (
	"encoding/base64"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// TestKnown: values are numbered in the order given, each once, and found in all their forms.
func TestKnown(t *testing.T) {
	first, second := secret.New("the-first-value-of-all"), secret.New("The-Second-Value-Of-All")
	k := New([]secret.Value{first, {}, second, first})
	if k.Len() != 2 {
		t.Errorf("%d values", k.Len())
	}
	for want, v := range []secret.Value{first, second} {
		if id, ok := k.FindID(v); id != want || !ok {
			t.Errorf("number %d, %v; want %d", id, ok, want)
		}
		if id, ok := k.Set.FindFirst("x " + base64.StdEncoding.EncodeToString([]byte(v.Reveal()))); id != want || !ok {
			t.Errorf("found %d, %v; want %d", id, ok, want)
		}
		if id, ok := k.Lower.FindFold(v.Reveal()); id != want || !ok {
			t.Errorf("found %d, %v in lower case; want %d", id, ok, want)
		}
	}
	if _, ok := k.FindID(secret.Value{}); ok {
		t.Error("the empty value has a number")
	}
}
