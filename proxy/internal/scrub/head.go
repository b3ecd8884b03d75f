package scrub

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

type responseScrub struct {
	scrubber *Scrubber
	options  Options
	report   *Report
	resp     *http.Response
	part     string // the part that is scrubbed now: the beginning of Found.In
	name     string // the name of the header, or empty
}

// replaceValue returns the token name for the value with this id, and counts the replacement.
func (x *responseScrub) replaceValue(id int) string {
	name := x.scrubber.chooseName(id, x.options.Sent)
	x.report.addFound(name, x.part+x.name[:min(len(x.name), maxPlace)])
	return name
}

// maxPlace bounds the name of a header in a report, in bytes.
const maxPlace = 80

func (x *responseScrub) scrubText(s string) string {
	s, _ = x.scrubber.set.ReplaceAll(s, x.replaceValue)
	return s
}

// scrubHead scrubs the status text and the headers.
func (x *responseScrub) scrubHead() {
	x.part = "status"
	x.resp.Status = x.scrubText(x.resp.Status)
	//defence:scrub-headers
	x.scrubHeaders(x.resp.Header, "header:")
	x.part, x.name = "body", ""
}

// scrubHeaders scrubs the values of headers, and removes a header whose name contains a credential. It ignores the
// letter case of names, because HTTP libraries change it.
func (x *responseScrub) scrubHeaders(h http.Header, part string) {
	for name, values := range h {
		if x.scrubber.lower.ContainsFold(name) {
			delete(h, name)
			x.report.addFound("", part)
			continue
		}
		x.part, x.name = part, name
		for i, v := range values {
			values[i] = x.scrubText(v)
		}
	}
}

// digestHeaders are headers with a hash of a body. Such a hash would confirm a guess at a scrubbed credential; a CRC
// even reveals bits of the credential.
var digestHeaders = []string{"Digest", "Content-Digest", "Repr-Digest", "X-Goog-Hash", "X-Checksum", "X-Content-Digest"}

// hashWords are the beginnings of words in the names of other digest headers, such as X-Ms-Blob-Content-Md5 and
// X-Oss-Hash-Crc64ecma.
var hashWords = []string{"md5", "crc32", "crc64", "sha1", "sha256", "sha512"}

// isDigest reports whether a header of this name may contain a hash of a body.
func isDigest(name string) bool {
	if slices.Contains(digestHeaders, name) || hasPrefixFold(name, "x-amz-checksum-") ||
		hasPrefixFold(name, "x-checksum-") {
		return true
	}
	for word := range strings.SplitSeq(name, "-") {
		if slices.ContainsFunc(hashWords, func(hash string) bool { return hasPrefixFold(word, hash) }) {
			return true
		}
	}
	return false
}

// dropDigests removes the hashes of the original body if the body that leaves differs or may differ. With etag it also
// removes the ETag, which can be such a hash.
func (x *responseScrub) dropDigests(h http.Header, etag bool) {
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

// fixBodylessHead corrects the head of a response without a body. Its Content-Length and digests describe the encoded
// body.
func (x *responseScrub) fixBodylessHead() {
	// A response to HEAD announces the length of the encoded body, but the proxy would send a decoded one.
	if encodings, err := coding.ParseResponse(x.resp.Header); err != nil || len(encodings) > 0 {
		x.resp.Header.Del("Content-Length")
		x.resp.ContentLength = -1
	}
	x.resp.Header.Del("Content-Encoding")
	x.dropDigests(x.resp.Header, len(x.options.Sent) > 0)
}
