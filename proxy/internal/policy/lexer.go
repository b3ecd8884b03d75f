package policy

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// errNotJSON is for a body that is not strict JSON, so that lenient parsers read it in different ways.
var errNotJSON = &formdata.Error{Reason: "its Content-Type is JSON and the body is not strictly so: a comment, " +
	"a name or string without double quotes, an unknown word or escape, a control character, or another charset"}

// jsonLexer checks the keys of JSON. It knows words and strings, but not the grammar between them. In a text that
// jsonLexer accepts, every parser reads the same words and strings, and the value of a key follows the key.
type jsonLexer struct {
	permits func(method string) bool
	state   lexState
	word    []byte // the number or literal, or the decoded string, being read; at most maxLexed
	escape  []byte // the escape being read
	read    int    // bytes read so far, up to the length of a byte order mark
	after   bool   // the last token was a string
	verb    bool   // the next string is the value of a field that may name a method
}

type lexState uint8

const (
	lexOutside lexState = iota
	lexWord
	lexString
	lexEscape
)

// maxLexed is how many bytes of a string are kept. No name is longer.
const maxLexed = 256

func (l *jsonLexer) scanText(text []byte) error {
	for i := 0; i < len(text); i++ {
		if l.state == lexString {
			// Plain bytes need no state, and most of a string is plain.
			n := plainLength(text[i:])
			l.keepBytes(text[i : i+n]...)
			if i += n; i == len(text) {
				return nil
			}
		}
		if err := l.scanByte(text[i]); err != nil {
			return err
		}
	}
	return nil
}

// plainLength returns how many bytes at the start of a string need no unescaping.
func plainLength(text []byte) int {
	for i, b := range text {
		if b < ' ' || b == '"' || b == '\\' {
			return i
		}
	}
	return len(text)
}

func (l *jsonLexer) scanEnd() error {
	switch l.state {
	case lexWord:
		return l.endWord()
	case lexOutside:
		return nil
	}
	return errNotJSON
}

func (l *jsonLexer) scanByte(b byte) error {
	// Parsers may ignore a byte order mark (RFC 8259, section 8.1), so the lexer skips it and checks the keys after it.
	if l.read < len(bom) {
		l.read++
		if b == bom[l.read-1] {
			return nil
		}
		l.read = len(bom)
	}
	switch l.state {
	case lexString:
		return l.scanString(b)
	case lexEscape:
		return l.scanEscape(b)
	case lexWord:
		if isAlphanumeric(b) || strings.IndexByte("+-.", b) >= 0 {
			l.keepBytes(b)
			return nil
		}
		if err := l.endWord(); err != nil {
			return err
		}
	}
	return l.scanOutside(b)
}

// bom may precede JSON.
const bom = "\xef\xbb\xbf"

// scanOutside handles a byte outside strings and words.
func (l *jsonLexer) scanOutside(b byte) error {
	switch {
	case strings.IndexByte(" \t\r\n\x1e", b) >= 0: // including a record separator (RFC 7464)
		return nil
	case l.after && strings.IndexByte(":,}]", b) < 0: // gjson would read the next token as the value of a key
		return errNotJSON
	case b == '"':
		l.state, l.word = lexString, l.word[:0]
		return nil
	case b == ':':
		return l.checkKey()
	// The elements of a list are values of the same key: [ keeps verb.
	case b == '[':
	case strings.IndexByte("{}],", b) >= 0:
		l.verb = false
	case isAlphanumeric(b) || b == '-':
		l.state, l.word = lexWord, append(l.word[:0], b)
		l.verb = false
	default:
		return errNotJSON
	}
	l.after = false
	return nil
}

// checkKey checks the string before a colon, which is a name.
func (l *jsonLexer) checkKey() error {
	if !l.after {
		return errNotJSON
	}
	l.after = false
	switch findClaim(string(l.word)) {
	case fullClaim:
		return ErrOverrideUnseen
	case verbClaim:
		l.verb = true
	}
	return nil
}

func (l *jsonLexer) endWord() error {
	l.state = lexOutside
	if len(l.word) == maxLexed { // cut off; only a number may be this long
		if strings.Trim(string(l.word), "+-.eE0123456789") != "" {
			return errNotJSON
		}
		return nil
	}
	if !json.Valid(l.word) {
		return errNotJSON
	}
	return nil
}

// scanString handles a byte of a string that is not plain.
func (l *jsonLexer) scanString(b byte) error {
	switch {
	case b < ' ':
		return errNotJSON
	case b == '\\':
		l.state, l.escape = lexEscape, l.escape[:0]
	case b == '"':
		l.state, l.after = lexOutside, true
		if !l.verb {
			return nil
		}
		// Too much padding hides the value beyond the kept bytes, so it is refused like an override.
		if v := findVerb(string(l.word)); v != "" && !l.permits(v) || isPadding(string(l.word), maxLexed) {
			return ErrOverrideUnseen
		}
	}
	return nil
}

// scanEscape handles a byte after a backslash.
func (l *jsonLexer) scanEscape(b byte) error {
	l.escape = append(l.escape, b)
	if l.escape[0] == 'u' && len(l.escape) < len("u0000") {
		return nil
	}
	l.state = lexString
	if i := strings.IndexByte(`"\/bfnrt`, l.escape[0]); i >= 0 {
		l.keepBytes("\"\\/\b\f\n\r\t"[i])
		return nil
	}
	c, err := strconv.ParseUint(string(l.escape[1:]), 16, 16)
	if err != nil || l.escape[0] != 'u' {
		return errNotJSON
	}
	// A lone surrogate becomes U+FFFD, which no name contains.
	l.keepBytes(utf8.AppendRune(nil, rune(c))...)
	return nil
}

func (l *jsonLexer) keepBytes(b ...byte) {
	l.word = append(l.word, b[:min(len(b), maxLexed-len(l.word))]...)
}
