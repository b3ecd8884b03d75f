package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Step is a request as it would have left, before the swap of token names.
type Step struct {
	// N is the step's number, from 1. The plan sets it.
	N      int
	Host   catalog.Host
	TLS    bool
	Method string
	URL    *url.URL // absolute
	Header http.Header
	Body   []byte
	// Server and Tool are set for a call of an MCP server's tool. Session is a text that the broker needs again when the
	// call is sent.
	Server, Tool, Session string

	// APIs are the APIs that hold the host. Tokens are the names of their credentials in the request.
	APIs, Tokens []string
	// Rule is the rule that holds the request, or "". ByAny means that others than the operator may decide.
	Rule  string
	ByAny bool
	// ShownMethod is the method that a person sees: Method, and the overrides in the request. Shown lists the headers.
	ShownMethod string
	Shown       []string
}

// memorySize returns about how many bytes the step takes in memory.
func (s Step) memorySize() int {
	n := len(s.URL.String()) + len(s.Body) + len(s.ShownMethod) + stepOverhead
	for name, list := range s.Header {
		for _, v := range list {
			n += len(name) + len(v)
		}
	}
	return n
}

// stepOverhead is the memory of a step without its text, in bytes.
const stepOverhead = 1 << 10

// writeParts writes all parts of the step that determine the sent request, each with its length.
func (s Step) writeParts(w io.Writer) {
	part := func(text string) { _, _ = io.WriteString(w, strconv.Itoa(len(text))+":"+text) } // a hash takes all
	part(s.Host.String())
	part(strconv.FormatBool(s.TLS))
	part(s.Method)
	part(s.URL.String())
	for _, name := range slices.Sorted(maps.Keys(s.Header)) {
		for _, v := range s.Header[name] {
			part(name)
			part(v)
		}
	}
	// An empty name ends the headers: no header has it.
	part("")
	part(string(s.Body))
	part(s.Server)
	part(s.Tool)
	part(s.Session)
}

// bodyText returns the body, and false if a person cannot read it.
func (s Step) bodyText() (string, bool) { return string(s.Body), utf8.Valid(s.Body) }

// toShown returns the step in the form for a person.
func (s Step) toShown(n int, changes []approvalapi.Change) approvalapi.Step {
	out := approvalapi.Step{
		N: n, APIs: s.APIs, Rule: s.Rule, Method: s.ShownMethod, URL: s.URL.String(), Headers: s.Shown, Body: string(s.Body),
		Tokens: s.Tokens, Changes: changes, Server: s.Server, Tool: s.Tool,
	}
	if s.Server != "" {
		out.Method, out.URL, out.Headers = "", "", nil
	}
	return out
}

// digestSteps identifies the run, the catalog's version and the requests that an approval covers.
func digestSteps(id, run, version string, steps []draftStep) string {
	h := sha256.New()
	for _, s := range []string{id, run, version} {
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
	}
	for _, s := range steps {
		s.writeParts(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}
