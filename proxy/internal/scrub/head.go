package scrub

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// response is one response that is being scrubbed.
type response struct {
	scrubber *Scrubber
	options  Options
	report   *Report
	resp     *http.Response
}

// replacement is what takes the place of a value, counted.
func (x *response) replacement(id int) string {
	x.report.n.Add(1)
	return x.scrubber.name(id, x.options.Sent)
}

func (x *response) text(s string) string {
	s, _ = x.scrubber.set.Replace(s, x.replacement)
	return s
}

// head scrubs the status text and the headers.
func (x *response) head() {
	x.resp.Status = x.text(x.resp.Status)
	x.header(x.resp.Header)
}

// header scrubs the values and leaves out headers whose name has a credential: a name is lower case or canonical when it
// arrives, so it is looked at without case.
func (x *response) header(h http.Header) {
	if disarm.Off("scrub-headers") {
		return
	}
	for name, values := range h {
		if x.scrubber.lower.ContainsFold(name) {
			delete(h, name)
			x.report.n.Add(1)
			continue
		}
		for i, v := range values {
			values[i] = x.text(v)
		}
	}
}

// digests are the headers that tell a hash of a body, which would confirm a guess of what was scrubbed from it.
var digests = []string{"Digest", "Content-Digest", "Repr-Digest", "Content-Md5", "X-Goog-Hash", "X-Checksum", "X-Content-Digest"}

// dropDigests leaves out hashes of a body that is no longer, or may not be, the one they were made of.
func dropDigests(h http.Header, etag bool) {
	for name := range h {
		if slices.Contains(digests, name) || hasPrefixFold(name, "x-amz-checksum-") || hasPrefixFold(name, "x-checksum-") {
			delete(h, name)
		}
	}
	if etag {
		h.Del("Etag")
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// noBody makes the head of an answer without a body right: what it says of a body's bytes is said of the encoded ones.
func (x *response) noBody() {
	if x.resp.Header.Get("Content-Encoding") != "" {
		x.resp.Header.Del("Content-Encoding")
		x.resp.Header.Del("Content-Length")
		x.resp.ContentLength = -1
	}
	dropDigests(x.resp.Header, len(x.options.Sent) > 0)
}
