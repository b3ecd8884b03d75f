package policy

import (
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// errNotJSON is for a body that is not strict JSON, so that lenient parsers read it in different ways.
var errNotJSON = &formdata.Error{Reason: "its Content-Type is JSON and the body is not strictly so: a comment, " +
	"a name or string without double quotes, an unknown word or escape, a missing comma or bracket, " +
	"a control character, or another charset"}

// jsonLexer checks the keys of JSON, and the values of those that may name a method.
type jsonLexer struct {
	permits func(method string) bool
	scanner jsonread.Scanner
	mark    int  // bytes of a byte order mark so far, or its length after any other byte
	verb    bool // the next string is the value of a field that may name a method
}

// maxLexed is how many bytes of a string are kept. No name is longer.
const maxLexed = 256

// bom may precede JSON.
const bom = "\xef\xbb\xbf"

func newJSONLexer(permits func(method string) bool) *jsonLexer {
	return &jsonLexer{permits: permits, scanner: jsonread.Scanner{MaxText: maxLexed, Many: true}}
}

func (l *jsonLexer) scanText(text []byte) error {
	// Parsers may ignore a byte order mark (RFC 8259, section 8.1), so the lexer skips it and checks the keys after it.
	for ; len(text) > 0 && l.mark < len(bom) && text[0] == bom[l.mark]; text = text[1:] {
		l.mark++
	}
	if len(text) > 0 {
		l.mark = len(bom)
	}
	for len(text) > 0 {
		n, e, err := l.scanner.Scan(text)
		if err != nil {
			return errNotJSON
		}
		if err := l.checkEvent(e); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

func (l *jsonLexer) scanEnd() error {
	if _, err := l.scanner.End(); err != nil {
		return errNotJSON
	}
	return nil
}

// checkEvent checks a key or a string that has ended.
func (l *jsonLexer) checkEvent(e jsonread.ScanEvent) error {
	switch e {
	case jsonread.EndKey:
		claim := findClaim(string(l.scanner.Text()))
		if l.verb = claim == verbClaim; claim == fullClaim {
			return ErrOverrideUnseen
		}
	case jsonread.EndString:
		if !l.verb {
			return nil
		}
		value := string(l.scanner.Text())
		// Too much padding hides the value beyond the kept bytes, so it is refused like an override.
		if v := findVerb(value); v != "" && !l.permits(v) || isPadding(value, maxLexed) {
			return ErrOverrideUnseen
		}
		l.verb = false
	// The first element of a list is a value of the same key: the beginning of a list keeps verb.
	case jsonread.BeginObject, jsonread.EndObject, jsonread.EndList, jsonread.BeginNumber, jsonread.BeginWord:
		l.verb = false
	}
	return nil
}
