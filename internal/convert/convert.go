// Package convert makes one form of a value from another.
package convert

import (
	"bytes"
	"encoding/json"
)

// ToJSON returns a value as JSON on one line. It does not escape <, > and &, which would take six times the space.
func ToJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Each returns the results of f for the elements of a list, in their order. It never returns nil.
func Each[From, To any](list []From, f func(From) To) []To {
	out := make([]To, len(list))
	for i, one := range list {
		out[i] = f(one)
	}
	return out
}
