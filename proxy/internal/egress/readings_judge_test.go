package egress_test

import (
	"fmt"
	"slices"
	"strings"
)

// The classes of a Disagreement.
const (
	// Misplaced: a peer finds the credential at a place that the API does not declare.
	Misplaced = "misplaced"
	// Overridden: a peer finds a restricted method.
	Overridden = "overridden"
	// Garbled: a peer finds a text other than the credential in its field.
	Garbled = "garbled"
	// Unequal: thorough readers disagree on whether the credential is there.
	Unequal = "unequal"
)

// Disagreement is a peer that reads a request differently from the proxy.
type Disagreement struct {
	Class, Reader, Kind string
	Field               Field
}

func (d Disagreement) String() string {
	return fmt.Sprintf("%s: %s (%s) reads %s", d.Class, d.Reader, d.Kind, d.Field)
}

// overrides are the names of fields from which web frameworks take the method, in lower case with hyphens for
// underscores. The list is separate from the proxy's list, so that the test does not share its mistakes.
var overrides = []string{
	"-method", "x-http-method-override", "x-http-method", "x-method-override", "-httpmethod", "x-original-method",
	"x-original-http-method", "x-http-methodoverride", "x-method",
}

// verbs are names of fields from which some APIs take the method.
var verbs = []string{"method", "httpmethod", "http-method"}

// Judge compares the readings of peers with the API's declaration.
func Judge(a API, readings []Reading) []Disagreement {
	var out []Disagreement
	for _, r := range readings {
		for _, f := range r.Fields {
			switch {
			case strings.Contains(f.Name, Mark):
				out = append(out, Disagreement{Misplaced, r.Reader, r.Kind, f})
			case strings.Contains(f.Value, Mark) && !a.declares(f):
				out = append(out, Disagreement{Misplaced, r.Reader, r.Kind, f})
			case strings.Contains(f.Value, Mark) && a.named(f) && f.Value != a.Value:
				out = append(out, Disagreement{Garbled, r.Reader, r.Kind, f})
			}
			if !a.Free && overriding(r.Kind, f) {
				out = append(out, Disagreement{Overridden, r.Reader, r.Kind, f})
			}
		}
		if !a.Free && slices.Contains(Restricted, strings.ToUpper(strings.TrimSpace(r.Method))) {
			out = append(out, Disagreement{Overridden, r.Reader, r.Kind, Field{Place: InMethod, Value: r.Method}})
		}
	}
	return append(out, unequal(readings)...)
}

// declares reports whether a field is the API's surface.
func (a API) declares(f Field) bool {
	kind, name, named := strings.Cut(a.Surface, ":")
	switch kind {
	case "header":
		if f.Place == InAuth {
			return !named
		}
		return f.Place == InHeader && (!named || strings.EqualFold(f.Name, name))
	case "body":
		return f.Place == InBody && (!named || f.Name == name) || !named && (f.Place == InFile || f.Place == InFilename)
	case "query":
		return f.Place == InQuery && f.Name == name
	}
	return f.Place == kind
}

// named reports whether the value of a declared field must be exactly the credential. A header, which may have a
// scheme, and a path are exempt.
func (a API) named(f Field) bool {
	return (f.Place == InBody || f.Place == InQuery) && strings.Contains(a.Surface, ":")
}

// overriding reports whether a server that supports overrides would take a restricted method from a field.
func overriding(kind string, f Field) bool {
	// Without a php.ini, PHP's $_REQUEST also contains the cookies.
	name := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(f.Name), "_", "-"), "cookie.")
	method := strings.ToUpper(strings.TrimSpace(f.Value))
	switch f.Place {
	case InHeader, InQuery, InBody:
	default:
		return false
	}
	if !slices.Contains(Restricted, method) || kind == KindUntyped {
		return false
	}
	if f.Place != InHeader && kind != KindJSON && slices.Contains(verbs, name) {
		return true
	}
	return slices.Contains(overrides, name)
}

// thorough are the readers that read all of JSON by RFC 8259. If one of them finds a value, all must find it. Other
// readers may support less (a type, lists, a thousandth field). A reader that does not find the credential leaks
// nothing.
var thorough = []string{"node-json", "python-json", "php-json", "ruby-json", "perl-json", "go-json"}

// unequal compares the thorough readers that accepted the request.
func unequal(readings []Reading) []Disagreement {
	isThorough := func(r Reading) bool {
		return r.Kind == KindJSON && slices.Contains(thorough, r.Reader) && r.Error == ""
	}
	if !slices.ContainsFunc(readings, func(r Reading) bool { return isThorough(r) && r.holds() }) {
		return nil
	}
	var out []Disagreement
	for _, r := range readings {
		if isThorough(r) && !r.holds() {
			out = append(out, Disagreement{Class: Unequal, Reader: r.Reader, Kind: r.Kind})
		}
	}
	return out
}

func (r Reading) holds() bool {
	return slices.ContainsFunc(r.Fields, func(f Field) bool { return strings.Contains(f.Value, Mark) })
}

// Finds reports whether the reader found the credential at the place that the API declares.
func (r Reading) Finds(a API) bool {
	return slices.ContainsFunc(r.Fields, func(f Field) bool { return f.Value == a.Value && a.declares(f) })
}
