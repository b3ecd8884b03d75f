// Package canary makes credentials for tests and finds them in output, in any form that a leak could take.
//
// A canary's core is random, so ten consecutive characters of it in an output, raw or encoded, are a leak of a part of
// the credential and no coincidence.
package canary

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"html"
	"net/url"
	"strings"
)

// Canary is one credential.
type Canary struct {
	// Name identifies it in reports of leaks.
	Name  string
	value string
	Set
}

// Set finds canaries. The zero Set has none.
type Set struct {
	pieces map[uint64][]piece // by their first bytes
	// heads has a bit for each key of pieces, and few others. A search looks here for each byte of the logs: a look takes a
	// tenth of the time of one in the map.
	heads []uint64
}

// piece is a part of a form, in lower case, that occurs only in this credential's form.
type piece struct{ text, name, form string }

// head is the number of bytes at the start of a piece that are its key: those of a uint64.
const head = 8

// headBits is the logarithm of the number of bits in heads. The sixteen canaries of a world set a tenth of them.
const headBits = 18

func newSet() Set {
	return Set{pieces: map[uint64][]piece{}, heads: make([]uint64, 1<<headBits/64)}
}

// headBit returns where heads has the bit of a key.
func headBit(key uint64) (word, mask uint64) {
	bit := key * 0x9e3779b97f4a7c15 >> (64 - headBits)
	return bit / 64, 1 << (bit % 64)
}

func (s Set) add(key uint64, list ...piece) {
	s.pieces[key] = append(s.pieces[key], list...)
	word, mask := headBit(key)
	s.heads[word] |= mask
}

// Join is a Set of several canaries.
func Join(all map[string]*Canary) Set {
	s := newSet()
	for _, c := range all {
		for k, list := range c.pieces {
			s.add(k, list...)
		}
	}
	return s
}

// Find returns the form in which a credential, or a part of one, is in data, or "".
func (s Set) Find(data []byte) string {
	if s.heads == nil {
		return ""
	}
	low := make([]byte, len(data))
	for i, b := range data { // pieces are ASCII
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	for i := 0; i+head <= len(low); i++ {
		key := binary.LittleEndian.Uint64(low[i:])
		if word, mask := headBit(key); s.heads[word]&mask == 0 {
			continue
		}
		for _, p := range s.pieces[key] {
			if bytes.HasPrefix(low[i:], []byte(p.text)) {
				return fmt.Sprintf("%s as %s at byte %d", p.name, p.form, i)
			}
		}
	}
	return ""
}

// window is how many characters of a credential in a row count as a leak.
const window = 10

// hard are characters that encoders treat differently.
const hard = `+/="&<>'\%~:;,`

// New makes a credential of letters and digits, as most are.
func New(name string) *Canary { return With(name, core(37)) }

// NewHard makes a credential with characters that percent, JSON, HTML and base64 encoders treat differently.
func NewHard(name string) *Canary { return With(name, core(14)+hard+core(14)) }

// NewEscaped makes a credential with percent escapes, as the sessions of many frameworks have them.
func NewEscaped(name string) *Canary { return With(name, core(14)+"%3A"+core(14)+"%2F"+core(14)+"%3D") }

// With makes a canary of a given value.
func With(name, value string) *Canary {
	c := &Canary{Name: name, value: value, Set: newSet()}
	other := another(value)
	for _, f := range forms {
		text, dummy := strings.ToLower(f.Encode(value)), strings.ToLower(f.Encode(other))
		length := window * len(text) / len(value)
		for i := 0; i+length <= len(text) && i+length <= len(dummy); i++ {
			part := text[i : i+length]
			// A piece that another credential's form has in the same place belongs to the form, not to the credential.
			if differences(part, dummy[i:i+length]) >= window*3/4 {
				c.add(binary.LittleEndian.Uint64([]byte(part)), piece{part, name, f.Name})
			}
		}
	}
	return c
}

// another is a value of the same shape with other letters and digits, each of the same width in every form: as decimal
// numbers, "a" to "c" have two digits and "d" to "z" three.
func another(value string) string {
	turn := func(r, first, last, by rune) rune { return first + (r-first+by)%(last-first+1) }
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'c':
			return turn(r, 'a', 'c', 1)
		case r >= 'd' && r <= 'z':
			return turn(r, 'd', 'z', 11)
		case r >= 'A' && r <= 'Z':
			return turn(r, 'A', 'Z', 13)
		case r >= '0' && r <= '9':
			return turn(r, '0', '9', 5)
		}
		return r
	}, value)
}

func differences(a, b string) int {
	n := 0
	for i := range len(a) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func core(n int) string {
	const letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
	b := make([]byte, n)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// Value is the credential itself.
func (c *Canary) Value() string { return c.value }

// Form is one way to write a credential.
type Form struct {
	Name   string
	Encode func(string) string
}

// forms are the forms that the proxy promises to recognise in a response.
var forms = []Form{
	{"raw", func(s string) string { return s }},
	{"percent", url.QueryEscape},
	{"percent-path", url.PathEscape},
	{"percent-all", func(s string) string { return each(s, "%%%02X") }},
	{"percent-all-lower", func(s string) string { return each(s, "%%%02x") }},
	{"json", jsonEscape},
	{"json-slash", func(s string) string { return strings.ReplaceAll(jsonEscape(s), "/", `\/`) }},
	{"json-u", func(s string) string { return each(s, `\u%04x`) }},
	{"json-u-upper", func(s string) string { return each(s, `\u%04X`) }},
	{"json-html-safe", func(s string) string {
		return strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(jsonEscape(s))
	}},
	{"html", html.EscapeString},
	{"html-named", func(s string) string {
		return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(s)
	}},
	{"html-decimal", func(s string) string { return each(s, "&#%d;") }},
	{"html-hex", func(s string) string { return each(s, "&#x%x;") }},
	{"base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }},
	{"base64-1", func(s string) string { return base64.StdEncoding.EncodeToString([]byte("?" + s + "?")) }},
	{"base64-2", func(s string) string { return base64.StdEncoding.EncodeToString([]byte("??" + s + "?!")) }},
	{"base64-raw", func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) }},
	{"base64url", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }},
	{"base64url-1", func(s string) string { return base64.URLEncoding.EncodeToString([]byte("?" + s + "?")) }},
	{"base64url-2", func(s string) string { return base64.URLEncoding.EncodeToString([]byte("??" + s + "?!")) }},
	{"basic-user", func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s+":x")) }},
	{"basic-password", func(s string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s))
	}},
	{"hex", func(s string) string { return hex.EncodeToString([]byte(s)) }},
	{"hex-upper", func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) }},
}

// Forms lists the forms, in a fixed order.
func Forms() []Form { return append([]Form(nil), forms...) }

// Encode writes a value in the named form.
func Encode(form, value string) (string, error) {
	for _, f := range forms {
		if f.Name == form {
			return f.Encode(value), nil
		}
	}
	return "", fmt.Errorf("no form %q", form)
}

func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func jsonEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}
