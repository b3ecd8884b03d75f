// Package argument reads the arguments of a tool call and answers mistakes so that a model can mend them: every mistake at
// once, each naming the argument, what was found and what is wanted, and one right example.
package argument

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// Spec is what a tool takes.
type Spec struct {
	Tool string
	// Names lists every argument.
	Names []string
	// Example is one right arguments object, as JSON.
	Example string
}

// Error lists the mistakes of one call.
type Error struct {
	Spec     Spec
	Mistakes []string
}

func (e *Error) Error() string {
	return "Nothing was run. Mistakes in the arguments of " + e.Spec.Tool + ":\n- " + strings.Join(e.Mistakes, "\n- ") + "\nExample: " + e.Spec.Example
}

// Reader reads arguments one by one and collects the mistakes. Make it with Read.
type Reader struct {
	spec     Spec
	values   map[string]json.RawMessage
	mistakes []string
}

// Read begins to read raw, which is an object or absent. Unknown arguments are mistakes.
func Read(raw json.RawMessage, spec Spec) *Reader {
	r := &Reader{spec: spec}
	if len(raw) == 0 || string(raw) == "null" {
		return r
	}
	if err := json.Unmarshal(raw, &r.values); err != nil {
		r.mistakes = append(r.mistakes, "found "+found(raw)+", want an object")
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if slices.Contains(spec.Names, name) {
			continue
		}
		m := fmt.Sprintf("there is no argument %s", quote(name))
		if near := typo.Nearest(name, len(name)/2, spec.Names); near != "" {
			m += fmt.Sprintf("; did you mean %q?", near)
		} else if len(spec.Names) > 0 {
			m += "; there is " + strings.Join(spec.Names, ", ")
		}
		r.mistakes = append(r.mistakes, m)
	}
	return r
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

// Texts reads an array of strings. One string counts as an array of one.
func (r *Reader) Texts(name, want string) []string {
	raw, ok := r.value(name)
	if !ok {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
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

// value is an argument that is there and not null.
func (r *Reader) value(name string) (json.RawMessage, bool) {
	raw, ok := r.values[name]
	return raw, ok && string(raw) != "null"
}

// Mistake adds one.
func (r *Reader) Mistake(text string) { r.mistakes = append(r.mistakes, text) }

// Err is all mistakes as an *Error, or nil.
func (r *Reader) Err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	return &Error{Spec: r.spec, Mistakes: r.mistakes}
}

// found describes a JSON value in a few words.
func found(raw json.RawMessage) string {
	s := strings.TrimSpace(string(raw))
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
	r := []rune(s)
	if len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strings.TrimSpace(kind + " " + s)
}

func quote(s string) string {
	r := []rune(s)
	if len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strconv.Quote(s)
}
