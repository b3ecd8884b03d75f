package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// argumentSpec is what a tool takes.
type argumentSpec struct {
	Tool string
	// Names lists every argument.
	Names []string
	// Example is one right arguments object, as JSON.
	Example string
	// MaxBytes is how long the arguments may be as JSON. Zero means maxArgumentBytes.
	MaxBytes int
}

const (
	// maxArgumentBytes is how long the arguments of a tool may be as JSON if its argumentSpec does not say.
	maxArgumentBytes = 16 << 10
	// maxArgumentMistakes is how many mistakes of one call are reported.
	maxArgumentMistakes = 10
	// maxArguments is how many arguments are read, wrong ones included.
	maxArguments = 100
	// maxEntry is how long an entry of a list of names may be as JSON, in bytes.
	maxEntry = 512
	// maxNumber is how long a number may be, in bytes.
	maxNumber = 64
)

// argumentError lists the mistakes of one call.
type argumentError struct {
	Spec     argumentSpec
	Mistakes []string
}

func (e *argumentError) Error() string {
	return "Nothing was run. Mistakes in the arguments of " + e.Spec.Tool + ":\n- " +
		strings.Join(e.Mistakes, "\n- ") + "\nExample: " + e.Spec.Example
}

// argumentReader reads the arguments of a tool call one by one and collects the mistakes, so that a model can correct
// all of them at once: each names the argument, what was found and what is wanted. Make it with readArguments.
//
// Threat: arguments of any size and number. Their sizes are checked before they are parsed, and the number of mistakes
// reported is bounded.
type argumentReader struct {
	spec       argumentSpec
	values     map[string]json.RawMessage
	mistakes   []string
	unreported int
}

// readArguments begins to read raw, which is an object or absent. Unknown arguments are mistakes.
func readArguments(raw json.RawMessage, spec argumentSpec) *argumentReader {
	r := &argumentReader{spec: spec}
	if len(raw) == 0 || string(raw) == "null" {
		return r
	}
	//defence:tool-bounds
	if most := cmp.Or(spec.MaxBytes, maxArgumentBytes); len(raw) > most {
		r.Mistake(fmt.Sprintf("found %d bytes of arguments, want at most %d", len(raw), most))
		return r
	}
	var most bool
	if r.values, most = readMembers(raw); r.values == nil {
		r.Mistake("found " + describeJSON(raw) + ", want an object")
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
		if len(r.mistakes) == maxArgumentMistakes {
			r.unreported++
			continue
		}
		m := fmt.Sprintf("there is no argument %s", quoteShort(name))
		if near := typo.Nearest(name, len(name)/2, spec.Names); near != "" {
			m += fmt.Sprintf("; did you mean %q?", near)
		} else if len(spec.Names) > 0 {
			m += "; the arguments are " + strings.Join(spec.Names, ", ")
		}
		r.Mistake(m)
	}
	return r
}

// readMembers reads an object, no further than maxArguments members. It is nil for anything else.
func readMembers(raw json.RawMessage) (values map[string]json.RawMessage, more bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, false
	}
	values = map[string]json.RawMessage{}
	n := 0
	for m, err := range jsonread.Spans(string(raw)) {
		if err != nil {
			return nil, false
		}
		//defence:tool-bounds
		if n == maxArguments {
			return values, true
		}
		values[m.Key] = raw[m.Start:m.End]
		n++
	}
	return values, false
}

// Text reads a string. A required one may not be missing or blank.
func (r *argumentReader) Text(name, want string, required bool) string {
	raw, ok := r.value(name)
	if !ok {
		if required {
			r.Mistake(name + ": missing, want " + want)
		}
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		r.Mistake(name + ": found " + describeJSON(raw) + ", want " + want)
		return ""
	}
	if required && strings.TrimSpace(s) == "" {
		r.Mistake(name + ": empty, want " + want)
	}
	return s
}

// Texts reads an array of at most most strings. One string counts as an array of one.
func (r *argumentReader) Texts(name, want string, most int) []string {
	raw, ok := r.value(name)
	if !ok {
		return nil
	}
	//defence:tool-bounds
	if len(raw) > most*maxEntry {
		r.Mistake(fmt.Sprintf("%s: found %d bytes, want %s, at most %d", name, len(raw), want, most))
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		//defence:tool-bounds
		if len(list) > most {
			r.Mistake(fmt.Sprintf("%s: found %d entries, want at most %d", name, len(list), most))
			return nil
		}
		return list
	}
	var one string
	if json.Unmarshal(raw, &one) == nil && !strings.HasPrefix(strings.TrimSpace(one), "[") {
		return []string{one}
	}
	r.Mistake(name + ": found " + describeJSON(raw) + ", want " + want)
	return nil
}

// Number reads a number from above zero to most. Digits in a string count as a number. Absent gives otherwise.
func (r *argumentReader) Number(name, want string, most, otherwise float64) float64 {
	raw, ok := r.value(name)
	if !ok {
		return otherwise
	}
	if len(raw) > maxNumber {
		r.Mistake(name + ": found " + describeJSON(raw) + ", want " + want)
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
		r.Mistake(name + ": found " + describeJSON(raw) + ", want " + want)
		return otherwise
	}
	return n
}

// Flag reads true or false, perhaps as a string. Absent is false. After a mistake it is not to be used.
func (r *argumentReader) Flag(name string) bool {
	raw, ok := r.value(name)
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true":
		return true
	case "false":
		return false
	}
	if ok {
		r.Mistake(name + ": found " + describeJSON(raw) + ", want true or false")
	}
	return false
}

// value is an argument that is present and not null.
func (r *argumentReader) value(name string) (json.RawMessage, bool) {
	raw, ok := r.values[name]
	return raw, ok && string(raw) != "null"
}

// Mistake adds a mistake. Those beyond maxArgumentMistakes are only counted.
func (r *argumentReader) Mistake(text string) {
	if len(r.mistakes) == maxArgumentMistakes {
		r.unreported++
		return
	}
	r.mistakes = append(r.mistakes, text)
}

// Full reports whether maxArgumentMistakes mistakes are known, so that no further one is reported.
func (r *argumentReader) Full() bool { return len(r.mistakes) == maxArgumentMistakes }

// Err is all mistakes as an *argumentError, or nil.
func (r *argumentReader) Err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	list := slices.Clone(r.mistakes)
	if r.unreported > 0 {
		list = append(list, fmt.Sprintf("and %d more", r.unreported))
	}
	return &argumentError{Spec: r.spec, Mistakes: list}
}

// describeJSON describes a JSON value in a few words.
func describeJSON(raw json.RawMessage) string {
	s := strings.TrimSpace(string(raw[:min(len(raw), maxDescribed)]))
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
	return strings.TrimSpace(kind + " " + cutShort(s))
}

// maxDescribed is how much of a value is looked at to describe it, in bytes: 40 characters and white space before them.
const maxDescribed = 400

func quoteShort(s string) string { return strconv.Quote(cutShort(s)) }

// cutShort is the first 40 characters.
func cutShort(s string) string {
	n := 0
	for i := range s {
		if n++; n > 40 {
			return s[:i] + "…"
		}
	}
	return s
}
