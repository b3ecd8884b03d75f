package policy

import (
	"bytes"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// pairScanner finds overrides in a body that is not a form by its type.
type pairScanner struct {
	permits func(method string) bool
	// isForm means that the body has no type, so servers read it as a form. Servers that ignore the type, such as Bottle,
	// read other bodies as a form too. In such a body, only a fullClaim with a value like a method counts, because text
	// has equals signs too.
	isForm      bool
	name, value []byte // at most maxPair bytes each; the name without the blanks before it
	hasValue    bool
}

// maxPair bounds the bytes of a name and of a value that the scanner checks. An override is shorter, even if it is
// escaped twice.
const maxPair = 512

func (s *pairScanner) scanText(text []byte) error {
	separators := "&;"
	if s.isForm {
		separators = "&;\r\n"
	}
	ends := multisearch.ScanBytes(text, separators)
	for at := 0; ; {
		end := ends.FindFrom(at)
		if err := s.addText(text[at:end]); err != nil || end == len(text) {
			return err
		}
		if err := s.scanEnd(); err != nil {
			return err
		}
		at = end + 1
	}
}

// addText adds text to the current pair.
func (s *pairScanner) addText(text []byte) error {
	if !s.hasValue {
		name, value, found := bytes.Cut(text, []byte("="))
		// Servers cut spaces before a name, so padding must not push the name out of the buffer.
		if len(s.name) == 0 {
			name = bytes.TrimLeft(name, " +\t\r\n")
		}
		s.name = append(s.name, name[:min(len(name), maxPair-len(s.name))]...)
		if s.hasValue, text = found, value; s.isForm && found && findClaim(string(s.name)) == fullClaim {
			return ErrOverrideUnseen
		}
	}
	s.value = append(s.value, text[:min(len(text), maxPair-len(s.value))]...)
	return nil
}

// scanEnd checks the pair that ends here.
func (s *pairScanner) scanEnd() error {
	value, bad := string(s.value), false
	switch {
	case !s.hasValue:
	case s.isForm && findClaim(string(s.name)) == verbClaim:
		v := findVerb(decodeEscapes(value))
		bad = v != "" && !s.permits(v) || isPadding(value, maxPair)
	case !s.isForm && findClaim(string(s.name)) == fullClaim:
		method := strings.Trim(decodeEscapes(decodeEscapes(value)), blankChars+"\"'")
		// Prose after an equals sign is not a method.
		unlikely := func(c rune) bool { return c > '~' || !isAlphanumeric(byte(c)) && c != '-' && c != '_' }
		isLikely := method != "" && len(value) < maxPair && !strings.ContainsFunc(method, unlikely)
		bad = isLikely && !s.permits(strings.ToUpper(method)) || isPadding(value, maxPair)
	}
	if s.name, s.value, s.hasValue = s.name[:0], s.value[:0], false; bad {
		return ErrOverrideUnseen
	}
	return nil
}
