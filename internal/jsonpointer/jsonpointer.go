// Package jsonpointer finds a text in a JSON document by a JSON pointer (RFC 6901).
//
// Threat: the documents hold secrets. Contract: no error quotes a document.
package jsonpointer

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Errors of Find. They contain no part of the document.
var (
	ErrSyntax  = errors.New("not a JSON pointer")
	ErrNotJSON = errors.New("not JSON")
	ErrMissing = errors.New("no value at the JSON pointer")
	ErrNotText = errors.New("an object, a list, true, false or null at the JSON pointer")
)

// Check returns ErrSyntax for a text that is not a JSON pointer. The empty pointer means the whole document.
func Check(pointer string) error {
	if pointer != "" && pointer[0] != '/' {
		return ErrSyntax
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && (i+1 == len(pointer) || pointer[i+1] != '0' && pointer[i+1] != '1') {
			return ErrSyntax
		}
	}
	return nil
}

// Find returns the string or number at a pointer. A step into a string continues in the JSON inside that string,
// because secret managers store JSON in that way. The empty pointer returns the document unchanged.
func Find(document []byte, pointer string) (string, error) {
	if err := Check(pointer); err != nil {
		return "", err
	}
	if pointer == "" {
		return string(document), nil
	}
	at, err := parseDocument(document)
	if err != nil {
		return "", err
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		if text, ok := at.(string); ok {
			if at, err = parseDocument([]byte(text)); err != nil {
				return "", ErrMissing
			}
		}
		if at = ChildAt(at, step); at == nil {
			return "", ErrMissing
		}
	}
	switch v := at.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", ErrNotText
}

// ChildAt returns the child of a decoded value that one step of a pointer names. It returns nil for a missing child and
// for null.
func ChildAt(at any, step string) any {
	// ~1 first: the other order would turn ~01 into / (RFC 6901, section 4).
	step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	switch v := at.(type) {
	case map[string]any:
		return v[step]
	case []any:
		i, err := strconv.Atoi(step)
		// An index has no leading zero or sign (RFC 6901, section 4).
		if err == nil && i >= 0 && i < len(v) && strconv.Itoa(i) == step {
			return v[i]
		}
	}
	return nil
}

func parseDocument(document []byte) (any, error) {
	// A Decoder would accept a value followed by other text.
	if !json.Valid(document) {
		return nil, ErrNotJSON
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(document)))
	// A float64 would change long numbers.
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, ErrNotJSON
	}
	return v, nil
}
