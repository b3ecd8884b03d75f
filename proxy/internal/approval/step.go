package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Step is a request as it would have left, before the swap of token names.
type Step struct {
	// Shown is the step as a person sees it. Its Body, Server and Tool are also what the proxy sends. AddStep sets its N,
	// URL and Changes.
	Shown  approvalapi.Step
	Host   catalog.Host
	TLS    bool
	Method string
	URL    *url.URL // absolute
	Header http.Header
	// Session is a text that the broker needs again when a call of an MCP server's tool is sent.
	Session string
	// ByAny means that others than the operator may decide.
	ByAny bool

	guard *readGuard // nil if the run has not read the object that the step changes
}

// memorySize returns about how many bytes the step takes in memory.
func (s Step) memorySize() int {
	n := len(s.URL.String()) + len(s.Shown.Body) + len(s.Shown.Method) + stepOverhead
	for name, list := range s.Header {
		for _, v := range list {
			n += len(name) + len(v)
		}
	}
	// The comparison with a read takes memory too.
	for _, c := range s.Shown.Changes {
		n += len(c.Field) + len(c.Before) + len(c.After)
	}
	if s.guard != nil {
		n += s.guard.read.memorySize()
		for name, v := range s.guard.before {
			n += len(name) + len(v)
		}
	}
	return n
}

// stepOverhead is the memory of a step without its text, in bytes.
const stepOverhead = 1 << 10

// hashSteps identifies the run, the catalog's version and the requests that an approval covers.
func (p *plan) hashSteps() string {
	h := sha256.New()
	WriteParts(h, p.ID, p.Run, p.version)
	for _, s := range p.steps {
		WriteParts(h, s.Host.String(), strconv.FormatBool(s.TLS), s.Method, s.URL.String())
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			for _, v := range s.Header[name] {
				WriteParts(h, name, v)
			}
		}
		// An empty name ends the headers: no header has it.
		WriteParts(h, "", s.Shown.Body, s.Shown.Server, s.Shown.Tool, s.Session)
	}
	return hex.EncodeToString(h.Sum(nil))
}
