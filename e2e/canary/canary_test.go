package canary

import (
	"strings"
	"testing"
)

// TestFind shows that a canary is found in each of its forms, in parts of them, and nowhere else.
func TestFind(t *testing.T) {
	for _, c := range []*Canary{New("PLAIN"), NewHard("HARD")} {
		others := []*Canary{New("PLAIN2"), NewHard("HARD2")}
		for _, f := range Forms() {
			text := "before " + f.Encode(c.Value()) + " after"
			if c.Find([]byte(text)) == "" {
				t.Errorf("%s not found as %s in %q", c.Name, f.Name, text)
			}
			half := text[:len(text)*2/3]
			if c.Name == "PLAIN" && c.Find([]byte(half)) == "" {
				t.Errorf("%s: two thirds not found as %s in %q", c.Name, f.Name, half)
			}
			for _, o := range others {
				if where := o.Find([]byte(text)); where != "" {
					t.Errorf("another canary is found: %s in %q", where, text)
				}
			}
		}
	}
	for _, text := range []string{"", "Bearer HTTPBIN_TOKEN", "Basic dXNlcjpIVFRQQklOX1RPS0VO", hard, strings.Repeat("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 40)} {
		if where := New("X").Find([]byte(text)); where != "" {
			t.Errorf("found %s in %q", where, text)
		}
		if where := NewHard("X").Find([]byte(text)); where != "" {
			t.Errorf("found %s in %q", where, text)
		}
	}
}
