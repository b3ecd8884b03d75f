package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// decodeStrict reads one JSON object that has only keys of fields, with the same spelling and at most once, with values
// of the pointers' types. encoding/json would accept "privileged" for "Privileged". Of two equal keys it would use the
// last, and the engine may use the first.
func decodeStrict(data []byte, fields map[string]any) error {
	// Invalid UTF-8 may be read differently by the engine.
	if !utf8.Valid(data) {
		return errors.New("the body is not UTF-8")
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return errors.New("the body is not a JSON object")
	}
	seen := map[string]bool{}
	for m, err := range jsonread.ListSpans(string(data)) {
		if err != nil {
			return fmt.Errorf("the body is not one JSON object: %w", err)
		}
		field, ok := fields[m.Key]
		if !ok {
			return fmt.Errorf("the field %q is not allowed", m.Key)
		}
		if seen[m.Key] {
			return fmt.Errorf("the field %q occurs twice", m.Key)
		}
		seen[m.Key] = true
		if err := json.Unmarshal(data[m.Start:m.End], field); err != nil {
			return fmt.Errorf("the field %q has a value of the wrong kind", m.Key)
		}
	}
	return nil
}
