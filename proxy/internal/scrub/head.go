package scrub

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// response is one response that is being scrubbed.
type response struct {
	scrubber *Scrubber
	options  Options
	report   *Report
	resp     *http.Response
	part     string // the part being scrubbed: the beginning of Found.In
	name     string // of the header, or empty
}

// replacement returns what replaces a value, and counts it.
func (x *response) replacement(id int) string {
	name := x.scrubber.name(id, x.options.Sent)
	x.report.add(name, x.part+x.name[:min(len(x.name), maxPlace)])
	return name
}

// maxPlace bounds the name of a header in a report, in bytes.
const maxPlace = 80

func (x *response) text(s string) string {
	s, _ = x.scrubber.set.Replace(s, x.replacement)
	return s
}

// head scrubs the status text and the headers.
func (x *response) head() {
	x.part = "status"
	x.resp.Status = x.text(x.resp.Status)
	//defence:scrub-headers
	x.header(x.resp.Header, "header:")
	x.part, x.name = "body", ""
}

// header scrubs the values, and removes headers whose name contains a credential. A name has lost its case when it
// arrives, so it is searched without case.
func (x *response) header(h http.Header, part string) {
	for name, values := range h {
		if x.scrubber.lower.ContainsFold(name) {
			delete(h, name)
			x.report.add("", part)
			continue
		}
		x.part, x.name = part, name
		for i, v := range values {
			values[i] = x.text(v)
		}
	}
}

// digests are the headers that contain a hash of a body, which would confirm a guess at what was scrubbed from it. A
// CRC even tells as many bits of that as it has.
var digests = []string{"Digest", "Content-Digest", "Repr-Digest", "X-Goog-Hash", "X-Checksum", "X-Content-Digest"}

// hashes are how words of the names of others begin, such as X-Ms-Blob-Content-Md5 and X-Oss-Hash-Crc64ecma.
var hashes = []string{"md5", "crc32", "crc64", "sha1", "sha256", "sha512"}

// isDigest reports whether a header of this name may contain a hash of a body.
func isDigest(name string) bool {
	if slices.Contains(digests, name) || hasPrefixFold(name, "x-amz-checksum-") || hasPrefixFold(name, "x-checksum-") {
		return true
	}
	for word := range strings.SplitSeq(name, "-") {
		if slices.ContainsFunc(hashes, func(hash string) bool { return hasPrefixFold(word, hash) }) {
			return true
		}
	}
	return false
}

// dropDigests removes hashes of a body that is no longer, or may no longer be, the one they were computed from. With
// etag it also removes the ETag, which can be such a hash.
func (x *response) dropDigests(h http.Header, etag bool) {
	for name := range h {
		if isDigest(name) {
			delete(h, name)
		}
	}
	//defence:etag
	if etag && len(h["Etag"]) > 0 && !x.options.KeepETag {
		h.Del("Etag")
		x.report.etagged.Store(true)
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// noBody corrects the head of a response without a body: what it says about the body's bytes is about the encoded ones.
func (x *response) noBody() {
	if encodings, err := coding.ParseResponse(x.resp.Header); err != nil || len(encodings) > 0 {
		x.resp.Header.Del("Content-Length")
		x.resp.ContentLength = -1
	}
	x.resp.Header.Del("Content-Encoding")
	x.dropDigests(x.resp.Header, len(x.options.Sent) > 0)
}
