// Package document is the result of importing an API's description in any language: operations, types, hosts, and how
// requests carry credentials.
//
// Threat: a description is text of an unknown author. Contract: nothing in it is fetched, opened or run. Text that a
// person or a model sees has passed Line or TypeScript's quotes. The catalog's parser checks hosts and places of
// credentials.
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

// Options are the user's decisions about an import.
type Options struct {
	// Name is the API's name, from which token names are made.
	Name string
	// Base is the URL of the document, or nil. Servers without a host are relative to it.
	Base *url.URL
	// Server replaces the document's servers.
	Server string
	// Vars are the values of variables in servers.
	Vars map[string]string
	// Scheme chooses how to authenticate. "none" means without a credential.
	Scheme string
	// Tokens replace token names, in order.
	Tokens []string
	// In is the place of a token in requests, for languages that do not define it: header:NAME. Empty: a bearer token.
	In string
	// Methods, if not nil, are the allowed methods. Operations with other methods are left out.
	Methods []string
}

// ImportedDocument is an imported description.
type ImportedDocument struct {
	// Kind is the language with its version, e.g. "OpenAPI 3.0.0".
	Kind string
	// Description is one line about the API.
	Description string
	// Head lacks the counts.
	Head       operation.Head
	Operations []operation.Line
	Types      []operation.Line
	// Hosts are all hosts of the document's servers.
	Hosts []string
	// HTTP means that a server uses plain HTTP, which the user chose.
	HTTP   bool
	Scheme Scheme
	// Other are the names of alternative schemes.
	Other []string
	// Notes list the omissions.
	Notes []string
}

// UnsupportedError is the error for a document that cannot be imported, with a remedy.
type UnsupportedError struct{ Found, Want string }

func (r *UnsupportedError) Error() string { return r.Found + "; want " + r.Want }

// ServerError means that the document does not say where requests go. The user can: with the value of Variable, or with
// the URL of a server, if Variable is empty.
type ServerError struct {
	UnsupportedError

	Variable string
}

// NewServerError returns a ServerError without a variable. Want begins with --server.
func NewServerError(found, want string) *ServerError {
	return &ServerError{UnsupportedError: UnsupportedError{found, "--server " + want}}
}

// ErrNoOperations is the error for a document without a usable operation.
var ErrNoOperations = errors.New("no operations")

// ParseServer checks the URL of a server. It returns the URL without a final slash, and its host.
func ParseServer(text string) (server, host string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return "", "", fmt.Errorf("%s is not a URL with a host", CleanLine(text, shortText))
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return "", "", fmt.Errorf("%s is a URL of neither https nor http", CleanLine(text, shortText))
	// The URL is stored in operations.jsonl, which other users can read.
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
		return "", "", fmt.Errorf("the host of %s is %w", CleanLine(text, shortText), err)
	}
	clean := url.URL{Scheme: u.Scheme, Host: p.String(), Path: strings.TrimRight(u.Path, "/")}
	return clean.String(), p.String(), nil
}

// shortText bounds a quotation in a message, in bytes.
const shortText = 120

// AddHost adds a host, unless the document already has it.
func (d *ImportedDocument) AddHost(host string) {
	if !slices.Contains(d.Hosts, host) {
		d.Hosts = append(d.Hosts, host)
	}
}

// maxNotes bounds the notes.
const maxNotes = 20

// AddNote adds a note, once.
func (d *ImportedDocument) AddNote(format string, args ...any) {
	text := CleanLine(fmt.Sprintf(format, args...), operation.MaxSummary)
	if len(d.Notes) < maxNotes && !slices.Contains(d.Notes, text) {
		d.Notes = append(d.Notes, text)
	}
}

// Finish sorts the types and completes the head. Without operations it returns ErrNoOperations.
func (d *ImportedDocument) Finish() error {
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
