// Package document is what an import makes of an API's description, whatever language that is in: operations, types,
// hosts, and how requests carry credentials.
//
// Threat: a description is text of an unknown author. Nothing in it is fetched, opened or run. What a person or a model
// sees of it was through Line or TypeScript's quotes; hosts and places of credentials are those of catalog.
package document

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

// Options are what the user decides about an import.
type Options struct {
	// Name is the API's, from which token names are made.
	Name string
	// Base is where the document came from, if that was a URL. Servers without a host follow on it.
	Base *url.URL
	// Server replaces the document's servers.
	Server string
	// Vars are the values of variables in servers.
	Vars map[string]string
	// Scheme chooses how to authenticate. "none" means not at all.
	Scheme string
	// Tokens replace token names, in their order.
	Tokens []string
	// In is where a token stands in requests, for languages that do not say: header:NAME, or empty for a bearer token.
	In string
	// Methods, when not nil, are those that may be used; operations with others are left out.
	Methods []string
}

// Document is an imported description.
type Document struct {
	// Kind is the language with its version, e.g. "OpenAPI 3.0.0".
	Kind string
	// Description is one line about the API.
	Description string
	// Head lacks the counts.
	Head       operation.Head
	Operations []operation.Line
	Types      []operation.Line
	// Hosts are all the hosts of its servers.
	Hosts []string
	// HTTP says that a server is one of plain HTTP, which the user chose.
	HTTP   bool
	Scheme Scheme
	// Other are the names of other schemes that could be chosen.
	Other []string
	// Notes say what was left out, and why.
	Notes []string
}

// Refused is a document that cannot be imported: what was found, and what the user can do.
type Refused struct{ Found, Want string }

func (r *Refused) Error() string { return r.Found + "; want " + r.Want }

// ErrNoOperations is for a document without a usable operation.
var ErrNoOperations = errors.New("no operations")

// CheckServer checks a URL that requests go to and returns it without a slash at its end, and its host.
func CheckServer(text string) (server, host string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return "", "", fmt.Errorf("%s is no URL with a host", Line(text, shortText))
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return "", "", fmt.Errorf("%s is a URL of neither https nor http", Line(text, shortText))
	case u.User != nil:
		return "", "", errors.New("a server's URL has a user in it")
	}
	name := u.Host
	if u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" {
		name = u.Hostname()
	}
	p, err := catalog.ParseHostPattern(name)
	if err != nil || strings.HasPrefix(name, "*") {
		if err == nil {
			err = errors.New("a wildcard")
		}
		return "", "", fmt.Errorf("the host of %s is %w", Line(text, shortText), err)
	}
	clean := url.URL{Scheme: u.Scheme, Host: p.String(), Path: strings.TrimRight(u.Path, "/")}
	return clean.String(), p.String(), nil
}

// shortText bounds what a message quotes.
const shortText = 120

// AddHost adds a host that is not there yet.
func (d *Document) AddHost(host string) {
	if !slices.Contains(d.Hosts, host) {
		d.Hosts = append(d.Hosts, host)
	}
}

// maxNotes bounds the notes.
const maxNotes = 20

// Note adds a note, once.
func (d *Document) Note(format string, args ...any) {
	text := Line(fmt.Sprintf(format, args...), operation.MaxSummary)
	if len(d.Notes) < maxNotes && !slices.Contains(d.Notes, text) {
		d.Notes = append(d.Notes, text)
	}
}

// Finish sorts what has no order and fills in the head. It is an error if there are no operations.
func (d *Document) Finish() error {
	if len(d.Operations) == 0 {
		return ErrNoOperations
	}
	slices.SortFunc(d.Types, func(a, b operation.Line) int { return strings.Compare(a.Type, b.Type) })
	d.Head.Operations, d.Head.Types = len(d.Operations), len(d.Types)
	for _, t := range d.Scheme.Tokens {
		d.Head.Auth = append(d.Head.Auth, operation.Auth{Token: t.Name, Place: t.Place, Value: t.Value})
	}
	return nil
}
