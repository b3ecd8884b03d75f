package readings

import (
	"fmt"
	"slices"
	"strings"
)

// Classes of a Disagreement.
const (
	// Misplaced: a peer finds the credential where the API does not declare it.
	Misplaced = "misplaced"
	// Overridden: a peer finds a restricted method.
	Overridden = "overridden"
	// Garbled: a peer finds another text than the credential in its field.
	Garbled = "garbled"
	// Unequal: peers of one kind do not agree whether the credential is there.
	Unequal = "unequal"
)

// Disagreement is a peer that reads a request otherwise than the proxy.
type Disagreement struct {
	Class, Reader, Kind string
	Field               Field
}

func (d Disagreement) String() string {
	return fmt.Sprintf("%s: %s (%s) reads %s", d.Class, d.Reader, d.Kind, d.Field)
}

// overrides are the names under which web frameworks take the method from a field, in lower case with hyphens for
// underscores. They are this package's own: it does not ask the proxy what an override is.
var overrides = []string{
	"-method", "x-http-method-override", "x-http-method", "x-method-override", "-httpmethod", "x-original-method",
	"x-original-http-method", "x-http-methodoverride", "x-method",
}

// verbs are names that some APIs take for the method.
var verbs = []string{"method", "httpmethod", "http-method"}

// Judge compares what peers read with what the API declares.
func Judge(a API, readings []Reading) []Disagreement {
	var out []Disagreement
	for _, r := range readings {
		for _, f := range r.Fields {
			switch {
			case strings.Contains(f.Name, Mark):
				out = append(out, Disagreement{Misplaced, r.Reader, r.Kind, f})
			case strings.Contains(f.Value, Mark) && !a.declares(f):
				out = append(out, Disagreement{Misplaced, r.Reader, r.Kind, f})
			case strings.Contains(f.Value, Mark) && f.Place != InHeader && f.Place != InPath && f.Value != a.Value && a.Surface != "body":
				out = append(out, Disagreement{Garbled, r.Reader, r.Kind, f})
			}
			if overriding(r.Kind, f) {
				out = append(out, Disagreement{Overridden, r.Reader, r.Kind, f})
			}
		}
		if slices.Contains(Restricted, strings.ToUpper(strings.TrimSpace(r.Method))) {
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

// overriding reports whether a server that knows overrides would take a restricted method from a field.
func overriding(kind string, f Field) bool {
	name := strings.ReplaceAll(strings.ToLower(f.Name), "_", "-")
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

// unequal compares readers of one kind, of those that did not refuse.
func unequal(readings []Reading) []Disagreement {
	found := map[string]int{}
	for _, r := range readings {
		if r.holds() {
			found[r.Kind]++
		}
	}
	var out []Disagreement
	for _, r := range readings {
		if r.Error == "" && found[r.Kind] > 0 && !r.holds() && bodily(r.Kind) {
			out = append(out, Disagreement{Class: Unequal, Reader: r.Reader, Kind: r.Kind})
		}
	}
	return out
}

func bodily(kind string) bool { return kind == KindForm || kind == KindMultipart || kind == KindJSON }

func (r Reading) holds() bool {
	return slices.ContainsFunc(r.Fields, func(f Field) bool { return strings.Contains(f.Value, Mark) })
}
