package hostname

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Pattern is an exact host name or a one-label wildcard ("*.example.com"), normalised as a Host is. The zero Pattern
// matches no host.
type Pattern struct{ text string }

// String is the normalised pattern.
func (p Pattern) String() string { return p.text }

// Wildcard is what follows "*." in a wildcard. It is false for an exact name.
func (p Pattern) Wildcard() (suffix string, ok bool) { return strings.CutPrefix(p.text, "*.") }

// ParsePattern reads a host name, or "*." and a host name of at least two labels that is not a public suffix
// (https://publicsuffix.org, private section included: anybody can register a name below "github.io"). Its errors show
// no more of the input than the suffix.
func ParsePattern(s string) (Pattern, error) {
	suffix, wild := strings.CutPrefix(s, "*.")
	h, err := Parse(suffix)
	if err != nil {
		return Pattern{}, err
	}
	public, icann := publicsuffix.PublicSuffix(h.name)
	single := h.Parent() == ""
	switch {
	case wild && single:
		return Pattern{}, fmt.Errorf("a wildcard over the whole of %q", h.name)
	case public == h.name && (wild || icann && !single):
		return Pattern{}, fmt.Errorf("the public suffix %q, under which anybody can register a name", h.name)
	case wild && len(h.name)+2 > maxHost:
		return Pattern{}, errLong
	case wild:
		return Pattern{text: "*." + h.name}, nil
	}
	return Pattern{text: h.name}, nil
}
