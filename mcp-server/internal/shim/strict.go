package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// decodeStrict reads one JSON object that has only keys of fields, in the same spelling, each at most once, with values
// of the type that the pointers point to. encoding/json alone would accept "privileged" for "Privileged", and of two
// equal keys the last, where the engine may use the first.
func decodeStrict(data []byte, fields map[string]any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("the body is not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return errors.New("the body is not valid JSON")
		}
		key, _ := t.(string)
		field, ok := fields[key]
		if !ok {
			return fmt.Errorf("the field %q is not allowed", key)
		}
		if seen[key] {
			return fmt.Errorf("the field %q stands twice", key)
		}
		seen[key] = true
		if err := dec.Decode(field); err != nil {
			return fmt.Errorf("the field %q has a value of the wrong kind", key)
		}
	}
	if _, err := dec.Token(); err != nil {
		return errors.New("the body is not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}
