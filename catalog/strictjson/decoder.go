// Package strictjson reads JSON files that people write. It reports every mistake: the place, the text there, and a
// right text.
//
// The package has the common parts of such readers: values with their lines, the Decoder that collects the mistakes,
// the Problem for one mistake, and the nearest known name. It knows no particular file and no credentials. No message
// quotes a text that may be a credential.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// Decoder collects the mistakes of one file. After a mistake, a method that reads a value leaves its target unchanged.
type Decoder struct {
	// API and File are set in each Problem.
	API, File string
	// Problems are the reported mistakes.
	Problems Problems
	// Count is the number of all mistakes, also of those that are not reported.
	Count int
	// Failed means that at least one mistake is an Error.
	Failed bool
}

// maxProblems is the number of reported mistakes of one file.
const maxProblems = 100

// AddError records an error in a field.
func (d *Decoder) AddError(field, found, want string) {
	d.AddProblem(Problem{API: d.API, File: d.File, Field: field, Found: found, Want: want})
}

// AddWarning records a warning about a field.
func (d *Decoder) AddWarning(field, found, want string) {
	d.AddProblem(Problem{API: d.API, File: d.File, Field: field, Found: found, Want: want, Severity: Warning})
}

// AddProblem records a mistake. The first error is always reported.
func (d *Decoder) AddProblem(p Problem) {
	d.Count++
	// The first error is always listed, because it decides whether the file is loaded.
	if len(d.Problems) < maxProblems || p.Severity == Error && !d.Failed {
		d.Problems = append(d.Problems, p)
	}
	d.Failed = d.Failed || p.Severity == Error
}

// IsFull reports whether further mistakes are only counted.
func (d *Decoder) IsFull() bool { return len(d.Problems) >= maxProblems && d.Failed }

// ReadRoot reads a file with one object, such as example. It returns nil after a mistake.
func (d *Decoder) ReadRoot(data []byte, example string) *jsonread.Node {
	if len(bytes.TrimSpace(data)) == 0 {
		d.AddError("line 1, column 1", "an empty file", "an object, e.g. "+example)
		return nil
	}
	// RFC 8259, section 8.1, forbids a byte order mark.
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		d.AddError("line 1, column 1", "a byte order mark", "UTF-8 without one")
		return nil
	}
	root, err := jsonread.Parse(string(data), jsonread.Options{})
	var syntax *jsonread.Error
	switch {
	case errors.As(err, &syntax):
		d.AddError(fmt.Sprintf("line %d, column %d", syntax.Line, syntax.Column), syntax.Found, syntax.Want)
	case root.Kind != jsonread.Object:
		d.AddError("", root.Kind.String(), "an object, e.g. "+example)
	default:
		return root
	}
	return nil
}

// ReadObject reads the members of an object with the fields known. It calls read for each member, with the index in
// known and the name for messages, which begins with path. It returns the fields of the object, and the known fields
// that the object misspells.
func (d *Decoder) ReadObject(
	path string, n *jsonread.Node, known []string, read func(i int, field string, n *jsonread.Node),
) (has, misspelt map[string]bool) {
	has, misspelt = map[string]bool{}, map[string]bool{}
	for _, m := range d.ReadMembers(path, n, func(key string) bool { return slices.Contains(known, key) }) {
		i := slices.Index(known, m.Key)
		if i < 0 {
			if near := d.reportUnknown(path, m, known); near != "" {
				misspelt[near] = true
			}
			continue
		}
		has[m.Key] = true
		read(i, path+m.Key, m.Node)
	}
	return has, misspelt
}

// ReadMembers lists an object's members. It reports repeated keys and keeps the first.
func (d *Decoder) ReadMembers(path string, n *jsonread.Node, known func(key string) bool) []jsonread.Member {
	first := map[string]uint32{}
	var out []jsonread.Member
	for _, m := range n.Members {
		if line, dup := first[m.Key]; dup {
			d.AddError(FieldLabel(path, m.Key, known(m.Key)),
				fmt.Sprintf("the same key on lines %d and %d", line, m.Node.Line), "each key once")
			continue
		}
		first[m.Key] = m.Node.Line
		out = append(out, m)
	}
	return out
}

// reportUnknown reports an unknown field, and returns the nearest known field or "".
func (d *Decoder) reportUnknown(path string, m jsonread.Member, known []string) string {
	if d.IsFull() {
		d.Count++
		return ""
	}
	near := NearestName(m.Key, known)
	want := "one of " + strings.Join(known, ", ")
	if near != "" {
		want = fmt.Sprintf("did you mean %q?", near)
	}
	d.AddError(FieldLabel(path, m.Key, near != ""), fmt.Sprintf("unknown field on line %d", m.Node.Line), want)
	return near
}

// FieldLabel returns the name of a key's field for messages. A key that does not resemble a known field may be a
// misplaced credential. Such a key is shown only at the top level, and only if it looks like a word.
func FieldLabel(path, key string, known bool) string {
	const longWord = 32
	word := path == "" && len(key) <= longWord && !strings.ContainsAny(key, "0123456789")
	if known || word {
		return path + QuoteKey(key)
	}
	return strings.TrimSuffix(path, ".")
}

// QuoteKey quotes a key for a message, unless the key is a plain word.
func QuoteKey(key string) string {
	if httpguts.ValidHeaderFieldName(key) {
		return CutQuote(key)
	}
	return strconv.Quote(CutQuote(key))
}

// CutQuote shortens a text that a message quotes.
func CutQuote(s string) string { return safetext.CutText(s, 80, "...") }

// ReadString reads a string.
func (d *Decoder) ReadString(field string, n *jsonread.Node, to *string) {
	switch {
	case n.Kind != jsonread.String:
		d.AddError(field, n.Kind.String(), "a string")
	// The parser writes U+FFFD for half of a surrogate pair.
	case strings.ContainsRune(n.Text, '\uFFFD'):
		d.AddError(field, "a string with U+FFFD or half of a surrogate pair", "text saved as UTF-8")
	default:
		*to = n.Text
	}
}

// ReadBool reads true or false.
func (d *Decoder) ReadBool(field string, n *jsonread.Node, to *bool) {
	if n.Kind != jsonread.Bool {
		found := n.Kind.String()
		if n.Kind == jsonread.String && (n.Text == "true" || n.Text == "false") {
			found = fmt.Sprintf("the string %q", n.Text)
		}
		d.AddError(field, found, "true or false, without quotes")
		return
	}
	*to = n.Text == "true"
}

// ReadStrings reads a list of strings, such as example. For an empty list the result is not nil; for a value that is
// not a list it is nil.
func (d *Decoder) ReadStrings(field string, n *jsonread.Node, example string) []string {
	out := []string{}
	if n.Kind != jsonread.List {
		d.AddError(field, n.Kind.String(), "a list of strings, e.g. "+example)
		return nil
	}
	for i, item := range n.ListItems() {
		var s string
		before := d.Count
		d.ReadString(fmt.Sprintf("%s[%d]", field, i), item.Node, &s)
		if d.Count == before {
			out = append(out, s)
		}
	}
	return out
}

// AtMost returns the first most entries of a list, and reports a longer list.
func (d *Decoder) AtMost(field string, list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	d.AddError(field, fmt.Sprintf("%d entries", len(list)), fmt.Sprintf("at most %d", most))
	return list[:most]
}

// ReadInt reads a whole number.
func (d *Decoder) ReadInt(field string, n *jsonread.Node, to *int) {
	if n.Kind != jsonread.Number {
		d.AddError(field, n.Kind.String(), "a whole number, without quotes")
		return
	}
	i, err := strconv.Atoi(n.Text)
	if err != nil {
		d.AddError(field, "a number that is not whole", "a whole number")
		return
	}
	*to = i
}

// ReadDuration reads a number of seconds, or a text such as "90s" or "10m". The duration must be between a millisecond
// and a day.
func (d *Decoder) ReadDuration(field string, n *jsonread.Node, to *time.Duration) {
	const (
		day  = 24 * time.Hour
		want = `seconds, e.g. 90, or a text like "90s" or "10m", at most 24h`
	)
	var out time.Duration
	switch n.Kind {
	case jsonread.Number:
		seconds, err := strconv.ParseFloat(n.Text, 64)
		if err != nil || seconds > day.Seconds() {
			d.AddError(field, "a number that is too large", want)
			return
		}
		out = time.Duration(seconds * float64(time.Second))
	case jsonread.String:
		var err error
		if out, err = time.ParseDuration(n.Text); err != nil {
			d.AddError(field, "not a duration", want)
			return
		}
	default:
		d.AddError(field, n.Kind.String(), want)
		return
	}
	if out < time.Millisecond || out > day {
		d.AddError(field, "less than a millisecond, or more than a day", want)
		return
	}
	*to = out
}
