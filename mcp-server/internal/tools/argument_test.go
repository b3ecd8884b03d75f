package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// read reads arguments as a tool of three would, and gives the mistakes as text.
func readThree(raw string, most int) string {
	r := readArguments(json.RawMessage(raw), argumentSpec{Tool: "x", Names: []string{"name", "list", "n"}, Example: "{}", MaxBytes: most})
	r.Text("name", "a name", false)
	r.Texts("list", "names", 5)
	r.Number("n", "a number", 0.1, 100, 1)
	if err := r.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// many is an object of n members, or a list of n strings.
func manyMembers(n int, list bool) string {
	var b strings.Builder
	for i := range n {
		if list {
			fmt.Fprintf(&b, `,"a%d"`, i)
		} else {
			fmt.Fprintf(&b, `,"a%d":1`, i)
		}
	}
	if text := strings.TrimPrefix(b.String(), ","); !list {
		return "{" + text + "}"
	}
	return `{"list":[` + strings.TrimPrefix(b.String(), ",") + `]}`
}

// TestBounds: sizes and numbers of arguments are refused in few words, whatever they are.
// Promise: bounded-work
func TestArgumentBounds(t *testing.T) {
	const large = 64 << 20
	for _, c := range []struct {
		name, raw string
		most      int
		want      string
	}{
		{"what is right", `{"name":"a","list":["a","b","c","d","e"],"n":100}`, 0, ""},
		{"the longest", `{"name":"` + strings.Repeat("a", maxArgumentBytes-11) + `"}`, 0, ""},
		{"longer", `{"name":"` + strings.Repeat("a", maxArgumentBytes-10) + `"}`, 0, "found 16385 bytes of arguments, want at most 16384"},
		{"longer than the tool takes", `{"name":"aaaaaaaaaaaaaa"}`, 20, "want at most 20"},
		{"one entry too many", `{"list":["a","b","c","d","e","f"]}`, 0, "list: found 6 entries, want at most 5"},
		{"100,000 entries", manyMembers(100_000, true), large, "list: found"},
		{"long entries", `{"list":["` + strings.Repeat("a", 100_000) + `"]}`, large, "list: found"},
		{"100,000 arguments", manyMembers(100_000, false), large, "found more than 100 arguments"},
		{"90 arguments", manyMembers(90, false), large, "and 80 more"},
		{"a number of 100,000 digits", `{"n":1` + strings.Repeat("0", 100_000) + `}`, large, "n: found the number 1000"},
		{"a number of 100,000 digits as a string", `{"n":"0.` + strings.Repeat("0", 100_000) + `1"}`, large, "n: found the string"},
		{"not a number", `{"n":"NaN"}`, 0, "n: found"},
		{"infinite", `{"n":"Inf"}`, 0, "n: found"},
		{"a long array in place of the object", "[" + strings.Repeat("1,", 100_000) + "1]", large, "found the array"},
		{"a long word", `{"` + strings.Repeat("n", 100_000) + `":1}`, large, "there is no argument"},
	} {
		got := readThree(c.raw, c.most)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %.200q, want %q", c.name, got, c.want)
		}
		if len(got) > 4<<10 {
			t.Errorf("%s: an answer of %d bytes", c.name, len(got))
		}
	}
}

// TestLinear: whatever arguments hold, reading them takes time in proportion to their size.
// Promise: bounded-work
func TestArgumentsLinear(t *testing.T) {
	const n = 1 << 20
	shapes := map[string]func(n int) string{
		"members":     func(n int) string { return manyMembers(n/10, false) },
		"entries":     func(n int) string { return manyMembers(n/8, true) },
		"one string":  func(n int) string { return `{"name":"` + strings.Repeat("a", n) + `"}` },
		"escapes":     func(n int) string { return `{"name":"` + strings.Repeat(`\u0061`, n/6) + `"}` },
		"white space": func(n int) string { return `{"name":` + strings.Repeat(" ", n) + `1}` },
		"one name":    func(n int) string { return `{"` + strings.Repeat("a", n) + `":1}` },
		"equal names": func(n int) string { return `{` + strings.Repeat(`"name":"a",`, n/11) + `"n":1}` },
		"digits":      func(n int) string { return `{"n":` + strings.Repeat("1", n) + `}` },
		"nested lists": func(n int) string {
			return `{"name":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}` + strings.Repeat(" ", n)
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			costtest.RequireLinear(t, n, func(n int) func() {
				raw := shape(n)
				return func() { readThree(raw, 1<<30) }
			})
		})
	}
}
