package policy

import (
	"bytes"
	"strings"
)

// maxPair is how many bytes of a pair are checked. An override is shorter, even if it is escaped twice.
const maxPair = 512

// anyForm looks for an override in a body that is not a form by its type. Servers that ignore the type, such as Bottle,
// read it as a form. Only names of overrides between ampersands or semicolons count: text has equals signs too.
type anyForm struct {
	permits func(method string) bool
	pair    []byte // since a separator, at most maxPair
	long    bool   // the pair is longer than maxPair, so it is not an override
}

func (f *anyForm) scanText(text []byte) error {
	amp, semi := indexFrom(text, 0, '&'), indexFrom(text, 0, ';')
	for at := 0; ; {
		n := min(amp, semi)
		if f.long = f.long || len(f.pair)+n-at > maxPair; !f.long {
			f.pair = append(f.pair, text[at:n]...)
		}
		if n == len(text) {
			return nil
		}
		if err := f.scanEnd(); err != nil {
			return err
		}
		// Only the index that was used is searched for again: two searches for each pair would take quadratic time.
		if at = n + 1; n == amp {
			amp = indexFrom(text, at, '&')
		} else {
			semi = indexFrom(text, at, ';')
		}
	}
}

// indexFrom returns the index of the next b, or the length of the text.
func indexFrom(text []byte, from int, b byte) int {
	if i := bytes.IndexByte(text[from:], b); i >= 0 {
		return from + i
	}
	return len(text)
}

// scanEnd checks the pair that ends here.
func (f *anyForm) scanEnd() error {
	pair, long := f.pair, f.long
	f.pair, f.long = f.pair[:0], false
	name, value, found := bytes.Cut(pair, []byte("="))
	if long || !found || findClaim(string(name)) != fullClaim {
		return nil
	}
	method := strings.Trim(decodeEscapes(decodeEscapes(string(value))), blankChars+"\"'")
	// Prose after an equals sign is not a method.
	unlikely := func(c rune) bool { return c > '~' || !isAlphanumeric(byte(c)) && c != '-' && c != '_' }
	if method == "" || strings.ContainsFunc(method, unlikely) {
		return nil
	}
	if !f.permits(strings.ToUpper(method)) {
		return ErrOverrideUnseen
	}
	return nil
}
