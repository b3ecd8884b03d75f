// Package argument reads the arguments of a tool call and reports mistakes so that a model can correct them: all
// mistakes at once, each naming the argument, what was found and what is wanted, and one correct example.
//
// Threat: arguments of any size and number. Their sizes are checked before they are parsed, and the number of mistakes
// reported is bounded.
package argument

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// Spec is what a tool takes.
type Spec struct {
	Tool string
	// Names lists every argument.
	Names []string
	// Example is one right arguments object, as JSON.
	Example string
	// MaxBytes is how long the arguments may be as JSON. Zero means MaxBytes.
	MaxBytes int
}

const (
	// MaxBytes is how long the arguments of a tool may be as JSON when its Spec does not say.
	MaxBytes = 16 << 10
	// MaxMistakes is how many mistakes of one call are reported.
	MaxMistakes = 10
	// maxArguments is how many arguments are read, wrong ones included.
	maxArguments = 100
	// maxEntry is how long an entry of a list of names may be as JSON, in bytes.
	maxEntry = 512
	// maxNumber is how long a number may be, in bytes.
	maxNumber = 64
)

// Error lists the mistakes of one call.
type Error struct {
	Spec     Spec
	Mistakes []string
}

func (e *Error) Error() string {
	return "Nothing was run. Mistakes in the arguments of " + e.Spec.Tool + ":\n- " +
		strings.Join(e.Mistakes, "\n- ") + "\nExample: " + e.Spec.Example
}

// Reader reads arguments one by one and collects the mistakes. Make it with Read.
type Reader struct {
	spec       Spec
	values     map[string]json.RawMessage
	mistakes   []string
	unreported int
}

// Read begins to read raw, which is an object or absent. Unknown arguments are mistakes.
func Read(raw json.RawMessage, spec Spec) *Reader {
	r := &Reader{spec: spec}
	if len(raw) == 0 || string(raw) == "null" {
		return r
	}
	if most := cmp.Or(spec.MaxBytes, MaxBytes); len(raw) > most && !disarm.Off("tool-bounds") {
		r.Mistake(fmt.Sprintf("found %d bytes of arguments, want at most %d", len(raw), most))
		return r
	}
	var most bool
	if r.values, most = members(raw); r.values == nil {
		r.Mistake("found " + found(raw) + ", want an object")
		return r
	}
	if most {
		r.Mistake(fmt.Sprintf("found more than %d arguments", maxArguments))
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if slices.Contains(spec.Names, name) {
			continue
		}
		if len(r.mistakes) == MaxMistakes {
			r.unreported++
			continue
		}
		m := fmt.Sprintf("there is no argument %s", quote(name))
		if near := typo.Nearest(name, len(name)/2, spec.Names); near != "" {
			m += fmt.Sprintf("; did you mean %q?", near)
		} else if len(spec.Names) > 0 {
			m += "; the arguments are " + strings.Join(spec.Names, ", ")
		}
		r.Mistake(m)
	}
	return r
}

// members reads an object, no further than maxArguments members. It is nil for anything else.
func members(raw json.RawMessage) (values map[string]json.RawMessage, more bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, false
	}
	values = map[string]json.RawMessage{}
	n := 0
	for m, err := range jsonread.Spans(string(raw)) {
		if err != nil {
			return nil, false
		}
		if n == maxArguments && !disarm.Off("tool-bounds") {
			return values, true
		}
		values[m.Key] = raw[m.Start:m.End]
		n++
	}
	return values, false
}

// Text reads a string. A required one may not be missing or blank.
func (r *Reader) Text(name, want string, required bool) string {
	raw, ok := r.value(name)
	if !ok {
		if required {
			r.Mistake(name + ": missing, want " + want)
		}
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		r.Mistake(name + ": found " + found(raw) + ", want " + want)
		return ""
	}
	if required && strings.TrimSpace(s) == "" {
		r.Mistake(name + ": empty, want " + want)
	}
	return s
}

// Texts reads an array of at most most strings. One string counts as an array of one.
func (r *Reader) Texts(name, want string, most int) []string {
	raw, ok := r.value(name)
	if !ok {
		return nil
	}
	if len(raw) > most*maxEntry && !disarm.Off("tool-bounds") {
		r.Mistake(fmt.Sprintf("%s: found %d bytes, want %s, at most %d", name, len(raw), want, most))
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		if len(list) > most && !disarm.Off("tool-bounds") {
			r.Mistake(fmt.Sprintf("%s: found %d entries, want at most %d", name, len(list), most))
			return nil
		}
		return list
	}
	var one string
	if json.Unmarshal(raw, &one) == nil && !strings.HasPrefix(strings.TrimSpace(one), "[") {
		return []string{one}
	}
	r.Mistake(name + ": found " + found(raw) + ", want " + want)
	return nil
}

// Number reads a number from above zero to most. Digits in a string count as a number. Absent gives otherwise.
func (r *Reader) Number(name, want string, most, otherwise float64) float64 {
	raw, ok := r.value(name)
	if !ok {
		return otherwise
	}
	if len(raw) > maxNumber {
		r.Mistake(name + ": found " + found(raw) + ", want " + want)
		return otherwise
	}
	var n float64
	err := json.Unmarshal(raw, &n)
	if err != nil {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			n, err = strconv.ParseFloat(strings.TrimSpace(s), 64)
		}
	}
	if err != nil || !(n > 0 && n <= most) {
		r.Mistake(name + ": found " + found(raw) + ", want " + want)
		return otherwise
	}
	return n
}

// Flag reads true or false, perhaps as a string. Absent is false. After a mistake it is not to be used.
func (r *Reader) Flag(name string) bool {
	raw, ok := r.value(name)
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true":
		return true
	case "false":
		return false
	}
	if ok {
		r.Mistake(name + ": found " + found(raw) + ", want true or false")
	}
	return false
}

// value is an argument that is present and not null.
func (r *Reader) value(name string) (json.RawMessage, bool) {
	raw, ok := r.values[name]
	return raw, ok && string(raw) != "null"
}

// Mistake adds a mistake. Those beyond MaxMistakes are only counted.
func (r *Reader) Mistake(text string) {
	if len(r.mistakes) == MaxMistakes {
		r.unreported++
		return
	}
	r.mistakes = append(r.mistakes, text)
}

// Full reports whether MaxMistakes mistakes are known, so that no further one is reported.
func (r *Reader) Full() bool { return len(r.mistakes) == MaxMistakes }

// Err is all mistakes as an *Error, or nil.
func (r *Reader) Err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	if r.unreported > 0 {
		return &Error{Spec: r.spec, Mistakes: append(slices.Clone(r.mistakes), fmt.Sprintf("and %d more", r.unreported))}
	}
	return &Error{Spec: r.spec, Mistakes: r.mistakes}
}

// found describes a JSON value in a few words.
func found(raw json.RawMessage) string {
	s := strings.TrimSpace(string(raw[:min(len(raw), maxFound)]))
	kind := "nothing"
	switch {
	case s == "":
	case s[0] == '"':
		kind = "the string"
	case s[0] == '{':
		kind = "the object"
	case s[0] == '[':
		kind = "the array"
	case s[0] == 't' || s[0] == 'f':
		kind = "the boolean"
	default:
		kind = "the number"
	}
	return strings.TrimSpace(kind + " " + cut(s))
}

// maxFound is how much of a value is looked at to describe it, in bytes: 40 characters and white space before them.
const maxFound = 400

func quote(s string) string { return strconv.Quote(cut(s)) }

// cut is the first 40 characters.
func cut(s string) string {
	n := 0
	for i := range s {
		if n++; n > 40 {
			return s[:i] + "…"
		}
	}
	return s
}
