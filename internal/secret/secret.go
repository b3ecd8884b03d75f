// Package secret holds a credential so that ordinary printing never shows it.
//
// Threat: a credential that reaches a log line, an error text or a marshalled struct by accident.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Mask is the printed form of a Value, for every verb and encoder.
const Mask = "[secret]"

// Value is a credential. Its zero value is the empty credential. Compare with Equal, not ==; read with Reveal.
type Value struct {
	// A pointer, because fmt calls no methods on unexported fields of other structs: there it would print a string, but
	// prints only the address of a pointer.
	s *string
}

// New wraps a credential.
func New(s string) Value { return Value{&s} }

// Reveal returns the credential. Review every call.
func (v Value) Reveal() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}

// IsEmpty reports whether the credential is empty.
func (v Value) IsEmpty() bool { return v.Reveal() == "" }

// Equal reports whether both are the same credential.
func (v Value) Equal(o Value) bool { return v.Reveal() == o.Reveal() }

// String returns the mask.
func (v Value) String() string { return Mask }

// GoString returns the mask.
func (v Value) GoString() string { return Mask }

// Format prints the mask for every verb, including %x and %+v.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Mask) }

// LogValue returns the mask to slog.
func (v Value) LogValue() slog.Value { return slog.StringValue(Mask) }

// MarshalJSON returns the mask as a JSON string.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + Mask + `"`), nil }

// MarshalText returns the mask.
func (v Value) MarshalText() ([]byte, error) { return []byte(Mask), nil }
