package policy

import (
	"bytes"
	"strings"
)

// maxPair is how much of a pair is looked at: more than an override needs, escaped twice.
const maxPair = 512

// anyForm looks for an override in a body that is not a form by its type, and one to a server that looks at no type, as
// Bottle. Only what names a method counts, between ampersands or semicolons: text has equals signs of its own.
type anyForm struct {
	permits func(method string) bool
	pair    []byte // since a separator, at most maxPair
	long    bool   // it is not an override
}

func (f *anyForm) scan(text []byte) error {
	amp, semi := next(text, 0, '&'), next(text, 0, ';')
	for at := 0; ; {
		n := min(amp, semi)
		if f.long = f.long || len(f.pair)+n-at > maxPair; !f.long {
			f.pair = append(f.pair, text[at:n]...)
		}
		if n == len(text) {
			return nil
		}
		if err := f.end(); err != nil {
			return err
		}
		if at = n + 1; n == amp {
			amp = next(text, at, '&')
		} else {
			semi = next(text, at, ';')
		}
	}
}

// next is where a byte is next, or the length of the text.
func next(text []byte, from int, b byte) int {
	if i := bytes.IndexByte(text[from:], b); i >= 0 {
		return from + i
	}
	return len(text)
}

// end ends a pair.
func (f *anyForm) end() error {
	pair, long := f.pair, f.long
	f.pair, f.long = f.pair[:0], false
	name, value, found := bytes.Cut(pair, []byte("="))
	if long || !found || claimOf(string(name)) != fullClaim {
		return nil
	}
	method := strings.Trim(decode(decode(string(value))), blank+"\"'")
	unlikely := func(c rune) bool { return c > '~' || !isAlphanumeric(byte(c)) && c != '-' && c != '_' }
	if method == "" || strings.ContainsFunc(method, unlikely) {
		return nil
	}
	if !f.permits(strings.ToUpper(method)) {
		return ErrOverrideUnseen
	}
	return nil
}
