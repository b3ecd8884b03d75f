package settings

import (
	"errors"
	"strings"
)

// expandQuoted resolves the escapes and variables of a double-quoted value.
func (p *dotenvParser) expandQuoted(raw string) (string, error) {
	var b strings.Builder
	for raw != "" {
		i := strings.IndexByte(raw, '\\')
		if i < 0 {
			i = len(raw)
		}
		plain, err := p.expandNames(raw[:i])
		if err != nil {
			return "", err
		}
		b.WriteString(plain)
		if i == len(raw) {
			break
		}
		b.WriteString(unescapeByte(raw[i+1]))
		raw = raw[i+2:]
	}
	return b.String(), nil
}

func unescapeByte(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	case '"', '\\', '$':
		return string(c)
	}
	return "\\" + string(c)
}

// expandNames replaces $NAME, ${NAME}, ${NAME-default} and ${NAME:-default}; $$ is a dollar. A name refers to a
// previous line of the file. An unknown name is empty.
func (p *dotenvParser) expandNames(s string) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "$")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "{"):
			inner, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return "", errors.New("a value with ${ and no }: write $$ for a dollar, or use single quotes")
			}
			value, err := p.expandBraced(inner)
			if err != nil {
				return "", err
			}
			b.WriteString(value)
			s = rest
		default:
			n := 0
			for n < len(after) && isValidName(after[:n+1]) {
				n++
			}
			// A dollar without a name stands for itself.
			if n == 0 {
				b.WriteByte('$')
			}
			value, _ := p.lookupName(after[:n])
			b.WriteString(value)
			s = after[n:]
		}
	}
}

func (p *dotenvParser) expandBraced(inner string) (string, error) {
	n := 0
	for n < len(inner) && isValidName(inner[:n+1]) {
		n++
	}
	name, rest := inner[:n], inner[n:]
	value, set := p.lookupName(name)
	switch {
	case name == "":
	case rest == "":
		return value, nil
	case strings.HasPrefix(rest, ":-"):
		if value == "" {
			// A default may contain variables, too.
			return p.expandNames(rest[2:])
		}
		return value, nil
	case strings.HasPrefix(rest, "-"):
		if !set {
			return p.expandNames(rest[1:])
		}
		return value, nil
	}
	return "", errors.New("an expansion other than ${NAME}, ${NAME-default} and ${NAME:-default}")
}

func (p *dotenvParser) lookupName(name string) (string, bool) {
	v, ok := p.vars[name]
	return v, ok
}
