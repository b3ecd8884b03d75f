package swap

import (
	"bytes"
	"strings"
)

// formClass names the parts of a form in which a byte stops a pass function.
type formClass uint8

const (
	endsValue formClass = 1 << iota
	endsKey
)

var formClasses = func() (t [256]formClass) {
	for i := range t {
		b := byte(i)
		if !isWord(b) && !isBare(b) {
			t[i] = endsValue | endsKey
		}
		// A plus sign is a space, so the key needs toLooseName.
		if b == '=' || b == '+' {
			t[i] = endsKey
		}
	}
	return t
}()

// plainForm returns how many bytes of text precede the first byte of a class.
func plainForm(text []byte, until formClass) int {
	n := 0
	for ; n+4 <= len(text); n += 4 {
		t := (*[4]byte)(text[n:])
		// One branch for four look-ups is faster than four branches.
		if (formClasses[t[0]]|formClasses[t[1]]|formClasses[t[2]]|formClasses[t[3]])&until != 0 {
			break
		}
	}
	for n < len(text) && formClasses[text[n]]&until == 0 {
		n++
	}
	return n
}

// passText returns how many bytes of text pass unchanged.
func (w *formWriter) passText(text []byte) int {
	if len(w.word) > 0 || len(w.escape) > 0 {
		return 0
	}
	n := 0
	if w.value {
		n = w.passValue(text)
	}
	for n < len(text) && !w.value && len(w.key) == 0 {
		key := w.passKey(text[n:])
		if key == 0 {
			break
		}
		w.value, w.only = true, true
		begin := n
		n += key
		// The key matters only if its value goes on after this text.
		if n += w.passValue(text[n:]); w.value {
			w.key = append(w.key, text[begin:begin+key-1]...)
		}
	}
	return n
}

// passKey passes a key with its equals sign, if the key has no escapes and is certainly not a declared key.
func (w *formWriter) passKey(text []byte) int {
	end := plainForm(text[:min(len(text), maxKey+1)], endsKey)
	if end == len(text) || end > maxKey || text[end] != '=' || w.mayBeDeclared(text[:end]) {
		return 0
	}
	return end + 1
}

// mayBeDeclared reports whether a server may read a key without escapes as a declared key, or as charsetField.
func (w *formWriter) mayBeDeclared(key []byte) bool {
	name := key
	if n := bytes.IndexByte(key, '['); n >= 0 {
		name = key[:n]
	}
	if !w.lengths.hasLength(len(name)) && !w.lengths.hasLength(len(key)) {
		return false
	}
	for _, f := range w.loose {
		if isLooseEqual(key, f) {
			return true
		}
	}
	return isLooseEqual(key, charsetField)
}

// isLooseEqual reports whether a lenient parser may read a key without escapes as a declared loose name.
func isLooseEqual(key []byte, declared string) bool {
	if n := bytes.IndexByte(key, '['); n >= 0 && !strings.Contains(declared, "[") {
		key = key[:n]
	}
	if len(key) != len(declared) {
		return false
	}
	for i, b := range key {
		// Setting bit 0x20 folds the case of letters. It also equates a few signs, which only makes the pass stop.
		if c := declared[i]; b|0x20 != c|0x20 && (b != '.' || c != '_') {
			return false
		}
	}
	return true
}

// passValue passes bytes of a value, with escapes, and the ampersand at its end.
func (w *formWriter) passValue(text []byte) int {
	n, escaped := 0, 0 // escaped is the end of the last escape
	for n < len(text) {
		if n += plainForm(text[n:], endsValue); n == len(text) {
			break
		}
		if text[n] == '&' {
			w.long, w.value, w.key = false, false, w.key[:0]
			return n + 1
		}
		// An escaped word character would continue a word, which the writer must see.
		if text[n] != '%' || n+2 >= len(text) || !isHexDigit(text[n+1]) || !isHexDigit(text[n+2]) ||
			isWord(decodeHexDigit(text[n+1])<<4|decodeHexDigit(text[n+2])) {
			break
		}
		n += 3
		escaped = n
	}
	if n > 0 {
		w.only, w.long = false, n > escaped && isWord(text[n-1])
	}
	return n
}
