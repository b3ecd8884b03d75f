package document

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// Scheme is a way to authenticate: one or more tokens, all of which a request carries.
type Scheme struct {
	// Name is the name in the document, or several names joined by "+". Empty: no scheme.
	Name   string
	Tokens []Token
}

// Token is a token name and how a request carries it.
type Token struct {
	Name string
	// Place is a surface of config.json, Value the text that code writes there.
	Place, Value string
	// Kind describes the value to type: "the key", "the user name".
	Kind string
}

// AuthWay is a scheme of a document before it has token names.
type AuthWay struct {
	Name string
	// Parts are the credentials that the way needs. Why is set instead if no token name can replace the credential.
	Parts []WayPart
	Why   string
	// Rank orders alternatives of a document. The lowest rank wins.
	Rank int
}

// WayPart is one credential of a way. "%s" in Value stands for its token name.
type WayPart struct {
	Place, Value, Kind string
	// Suffix is the usual end of its token name.
	Suffix string
}

// BearerWay returns a bearer token in the Authorization header.
func BearerWay(name string) AuthWay {
	return AuthWay{Name: name, Parts: []WayPart{{"header:Authorization", "Bearer %s", "the access token", "AUTH_TOKEN"}}}
}

// AccessKey is the Kind of an access key of AWS, with which the proxy signs requests.
const AccessKey = "the access key"

// AWSWay returns a signature of AWS.
func AWSWay(name string) AuthWay {
	return AuthWay{Name: name, Parts: []WayPart{{"header:Authorization", "AWS4-HMAC-SHA256 %s", AccessKey, "AWS_KEY"}}}
}

// HeaderWay returns a credential in a header, after a prefix such as "Bearer ".
func HeaderWay(name, header, prefix string) AuthWay {
	w := AuthWay{Name: name, Rank: 1}
	s, err := catalog.ParseSurface("header:" + header)
	if err != nil {
		w.Why = fmt.Sprintf("it is sent in the header %s: %v", CleanLine(header, shortText), err)
		return w
	}
	// The prefix is the document's text, and Value is a format.
	w.Parts = []WayPart{{s.String(), strings.ReplaceAll(prefix, "%", "") + "%s", "the key", "API_KEY"}}
	return w
}

// QueryWay returns a credential in a parameter.
func QueryWay(name, parameter string) AuthWay {
	w := AuthWay{Name: name, Rank: 2}
	s, err := catalog.ParseSurface("query:" + parameter)
	if err != nil || CleanLine(parameter, shortText) != parameter {
		w.Why = "it is sent in a parameter with a name that cannot be in config.json"
		return w
	}
	w.Parts = []WayPart{{s.String(), "%s", "the key", "API_KEY"}}
	return w
}

// CookieWay returns a credential in a cookie.
func CookieWay(name, cookie string) AuthWay {
	w := AuthWay{Name: name, Rank: 4}
	s, err := catalog.ParseSurface("cookie:" + cookie)
	if err != nil {
		w.Why = "it is sent in a cookie with a name that cannot be in config.json"
		return w
	}
	w.Parts = []WayPart{{s.String(), "%s", "the cookie's value", "SESSION_KEY"}}
	return w
}

// BasicWay returns a user name and a password.
func BasicWay(name string) AuthWay {
	const value = `Basic ${btoa("%s:%s")}`
	return AuthWay{Name: name, Rank: 3, Parts: []WayPart{
		{"header:Authorization", value, "the user name", "USERNAME"},
		{"header:Authorization", value, "the password", "PASSWORD"},
	}}
}

// UnusableWay returns a way that cannot be used.
func UnusableWay(name, why string) AuthWay { return AuthWay{Name: name, Why: why, Rank: 9} }

// CombineWays returns a way that needs all of several ways.
func CombineWays(ways []AuthWay) AuthWay {
	out := AuthWay{Rank: 3 * (len(ways) - 1)}
	var names []string
	for _, w := range ways {
		names = append(names, w.Name)
		out.Rank = max(out.Rank, w.Rank) + 1
		if w.Why != "" && out.Why == "" {
			out.Why = w.Why
		}
		for _, p := range w.Parts { // two schemes of one token differ only in their rights
			if len(w.Parts) > 1 || !slices.Contains(out.Parts, p) {
				out.Parts = append(out.Parts, p)
			}
		}
	}
	out.Name = strings.Join(names, "+")
	seen := map[string]bool{}
	for i, p := range out.Parts {
		basic := i > 0 && out.Parts[i-1].Value == p.Value && strings.Count(p.Value, "%s") > 1
		// A header or parameter can carry only one credential.
		if seen[p.Place] && !basic && out.Why == "" {
			out.Why = "two credentials in one place"
		}
		seen[p.Place] = true
	}
	return out
}

// NameTokens gives token names to a way: the user's, or names made from the API's name.
func (w AuthWay) NameTokens(api string, tokens []string) (Scheme, error) {
	if len(tokens) > len(w.Parts) {
		return Scheme{}, &UnsupportedError{fmt.Sprintf("%d token names, and %s has %d", len(tokens), w.Name, len(w.Parts)),
			"as many at most"}
	}
	s := Scheme{Name: w.Name}
	used := map[string]bool{}
	for i, p := range w.Parts {
		t := Token{Place: p.Place, Value: p.Value, Kind: p.Kind}
		if t.Name = TokenName(api, p.Suffix); i < len(tokens) {
			t.Name = tokens[i]
		}
		for n := 2; used[t.Name] && i >= len(tokens); n++ {
			t.Name = TokenName(api, fmt.Sprintf("%s_%d", p.Suffix, n))
		}
		if !catalog.ValidTokenName(t.Name) || used[t.Name] {
			return Scheme{}, &UnsupportedError{"the token name " + CleanLine(t.Name, shortText),
				"5 to 64 of A-Z, 0-9 and _, starting with a letter, each once: --token"}
		}
		used[t.Name] = true
		s.Tokens = append(s.Tokens, t)
	}
	for i := range s.Tokens {
		switch v := s.Tokens[i].Value; strings.Count(v, "%s") {
		case 1:
			s.Tokens[i].Value = fmt.Sprintf(v, s.Tokens[i].Name)
		case 2: // a user name, and the password after it
			both := fmt.Sprintf(v, s.Tokens[i].Name, s.Tokens[i+1].Name)
			s.Tokens[i].Value, s.Tokens[i+1].Value = both, both
		}
	}
	return s, nil
}

// TokenName returns the usual token name of an API.
func TokenName(api, suffix string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, api)
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		name = "API_" + name
	}
	const longest = 64
	if n := longest - len(suffix) - 1; len(name) > n {
		name = name[:n]
	}
	return name + "_" + suffix
}
