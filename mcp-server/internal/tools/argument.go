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

type argumentSpec struct {
	Tool string
	// Names lists every argument.
	Names []string
	// Example is one valid arguments object, as JSON.
	Example string
	// MaxBytes bounds the arguments as JSON, in bytes. Zero means maxArgumentBytes.
	MaxBytes int
}

const (
	// maxArgumentBytes bounds the arguments of a tool as JSON, in bytes, if its argumentSpec sets no bound.
	maxArgumentBytes = 16 << 10
	// maxArgumentMistakes is the largest number of mistakes reported for one call.
	maxArgumentMistakes = 10
	// maxArguments is the largest number of arguments that are read, unknown ones included.
	maxArguments = 100
	// maxEntry bounds an entry of a list of names as JSON, in bytes.
	maxEntry = 512
	// maxNumber bounds the text of a number, in bytes.
	maxNumber = 64
)

// argumentError lists the mistakes of one call.
type argumentError struct {
	Spec     argumentSpec
	Mistakes []string
}

func (e *argumentError) Error() string {
	return "Not run: mistakes in the arguments of " + e.Spec.Tool + ":\n- " +
		strings.Join(e.Mistakes, "\n- ") + "\nExample: " + e.Spec.Example
}

// argumentReader reads the arguments of a tool call one by one and collects the mistakes, so that a model can correct
// all of them at once. Each mistake names the argument, the value found and the value wanted. Create it with
// readArguments.
//
// Threat: arguments of any size and number. Contract: sizes are checked before parsing, and the number of reported
// mistakes is bounded.
type argumentReader struct {
	spec       argumentSpec
	values     map[string]json.RawMessage
	mistakes   []string
	unreported int
}

// readArguments starts to read raw, which is an object or absent. Unknown arguments are mistakes.
func readArguments(raw json.RawMessage, spec argumentSpec) *argumentReader {
	r := &argumentReader{spec: spec}
	if len(raw) == 0 || string(raw) == "null" {
		return r
	}
	// Checked before parsing, which takes many times the memory of the text.
	//defence:tool-bounds
	if most := cmp.Or(spec.MaxBytes, maxArgumentBytes); len(raw) > most {
		r.AddMistake(fmt.Sprintf("found %d bytes of arguments, want at most %d", len(raw), most))
		return r
	}
	var most bool
	if r.values, most = readMembers(raw); r.values == nil {
		r.AddMistake("found " + describeJSON(raw) + ", want an object")
		return r
	}
	if most {
		r.AddMistake(fmt.Sprintf("found more than %d arguments", maxArguments))
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if slices.Contains(spec.Names, name) {
			continue
		}
		// Looking for a similar name takes time, so mistakes that are not reported skip it.
		if len(r.mistakes) == maxArgumentMistakes {
			r.unreported++
			continue
		}
		m := fmt.Sprintf("there is no argument %s", strconv.Quote(cutShort(name)))
		if near := typo.NearestOf(name, len(name)/2, spec.Names); near != "" {
			m += fmt.Sprintf("; did you mean %q?", near)
		} else if len(spec.Names) > 0 {
			m += "; the arguments are " + strings.Join(spec.Names, ", ")
		}
		r.AddMistake(m)
	}
	return r
}

// readMembers reads an object, at most maxArguments members. It returns nil for any other value.
func readMembers(raw json.RawMessage) (values map[string]json.RawMessage, more bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, false
	}
	values = map[string]json.RawMessage{}
	n := 0
	for m, err := range jsonread.ListSpans(string(raw)) {
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

// Text reads a string. A required string must not be missing or blank.
func (r *argumentReader) Text(name, want string, required bool) string {
	raw, ok := r.presentValue(name)
	if !ok {
		if required {
			r.AddMistake(name + ": missing, want " + want)
		}
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		r.AddMistake(name + ": found " + describeJSON(raw) + ", want " + want)
		return ""
	}
	if required && strings.TrimSpace(s) == "" {
		r.AddMistake(name + ": empty, want " + want)
	}
	return s
}

// Texts reads an array of at most most strings. A single string counts as an array of one.
func (r *argumentReader) Texts(name, want string, most int) []string {
	raw, ok := r.presentValue(name)
	if !ok {
		return nil
	}
	//defence:tool-bounds
	if len(raw) > most*maxEntry {
		r.AddMistake(fmt.Sprintf("%s: found %d bytes, want %s, at most %d", name, len(raw), want, most))
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		//defence:tool-bounds
		if len(list) > most {
			r.AddMistake(fmt.Sprintf("%s: found %d entries, want at most %d", name, len(list), most))
			return nil
		}
		return list
	}
	var one string
	// A string that starts with [ is most likely an array in quotes, not the name of one entry.
	if json.Unmarshal(raw, &one) == nil && !strings.HasPrefix(strings.TrimSpace(one), "[") {
		return []string{one}
	}
	r.AddMistake(name + ": found " + describeJSON(raw) + ", want " + want)
	return nil
}

// Number reads a number from least to most. Digits in a string count as a number. It returns otherwise if the number is
// absent.
func (r *argumentReader) Number(name, want string, least, most, otherwise float64) float64 {
	raw, ok := r.presentValue(name)
	if !ok {
		return otherwise
	}
	// Bounded before parsing: no useful number is longer.
	if len(raw) > maxNumber {
		r.AddMistake(name + ": found " + describeJSON(raw) + ", want " + want)
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
	// Written so that NaN, which ParseFloat accepts, is a mistake too.
	if err != nil || !(n >= least && n <= most) {
		r.AddMistake(name + ": found " + describeJSON(raw) + ", want " + want)
		return otherwise
	}
	return n
}

// Flag reads true or false, which may be a string. Absent means false. The result is meaningless after a mistake.
func (r *argumentReader) Flag(name string) bool {
	raw, ok := r.presentValue(name)
	// The trim accepts a string as well as a boolean.
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true":
		return true
	case "false":
		return false
	}
	if ok {
		r.AddMistake(name + ": found " + describeJSON(raw) + ", want true or false")
	}
	return false
}

// presentValue returns an argument that is present and not null.
func (r *argumentReader) presentValue(name string) (json.RawMessage, bool) {
	raw, ok := r.values[name]
	return raw, ok && string(raw) != "null"
}

// AddMistake adds a mistake. Beyond maxArgumentMistakes it only counts.
func (r *argumentReader) AddMistake(text string) {
	if len(r.mistakes) == maxArgumentMistakes {
		r.unreported++
		return
	}
	r.mistakes = append(r.mistakes, text)
}

// IsFull reports whether maxArgumentMistakes is reached, so that further mistakes are not reported.
func (r *argumentReader) IsFull() bool { return len(r.mistakes) == maxArgumentMistakes }

// Err returns all mistakes as an *argumentError, or nil.
func (r *argumentReader) Err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	// Err may be called more than once, so the list is copied.
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

// maxDescribed bounds the part of a value that is read to describe it, in bytes: 40 characters after white space.
const maxDescribed = 400

// cutShort returns the first 40 characters.
func cutShort(s string) string {
	n := 0
	for i := range s {
		if n++; n > 40 {
			return s[:i] + "…"
		}
	}
	return s
}
