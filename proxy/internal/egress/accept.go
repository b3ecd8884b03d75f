package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// errCompressed is for a compressed response that the API does not allow, from a host with credentials.
var errCompressed = errors.New("the response is compressed although the request did not accept that")

// compression says whether a host may compress its responses. Threat: a response may contain a credential next to text
// that the code chose. Code can measure its compressed length as time. The length differs between a right and a wrong
// guess at a part of the credential (as in BREACH). A page may show a credential to a session that an earlier request
// opened, so the host decides, not the request.
type compression struct {
	asked    bool // Accept-Encoding may name a content coding
	accepted bool // a compressed response is decoded and passed on
}

// compressionOf derives compression from all APIs that hold a host, also those outside the run.
func compressionOf(holders []*catalog.API) compression {
	c := compression{asked: len(holders) > 0, accepted: true}
	for _, a := range holders {
		c.asked = c.asked && a.Compress
		c.accepted = c.accepted && (a.Compress || len(a.Credentials) == 0)
	}
	//defence:compression instead compression{asked: true, accepted: true}
	return c
}

// check returns errCompressed for a response with a compressed body if the host may not compress.
func (c compression) check(resp *http.Response, method string) error {
	encodings, err := coding.ParseResponse(resp.Header)
	// Responses without a body may still name the coding that the body would have.
	empty := method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified || resp.ContentLength == 0
	if c.accepted || err != nil || len(encodings) == 0 || empty { // scrub refuses unknown codings
		return nil
	}
	return errCompressed
}

// setAcceptHeaders rewrites the headers by which a client negotiates the response's encoding. It leaves only the
// content codings that c allows, and no character set.
func (c compression) setAcceptHeaders(h http.Header) {
	gzip := c.asked && wantsCoding(h, "gzip")
	for name := range h {
		//defence:compression
		if canChooseEncoding(name) {
			delete(h, name)
		}
	}
	if media := removeCharset(h["Accept"]); len(media) > 0 {
		h["Accept"] = media
	} else {
		delete(h, "Accept")
	}
	// Without the header a server may choose any coding (RFC 9110, section 12.5.3).
	h.Set("Accept-Encoding", "identity")
	if gzip {
		h.Set("Accept-Encoding", "gzip")
	}
}

// canChooseEncoding reports whether a server may read a header's name as one that chooses a response's coding or
// character set. CGI, WSGI and Rack map Accept_Encoding, Accept.Encoding and Accept-Encoding to HTTP_ACCEPT_ENCODING.
// Headers that describe the request's body do not count.
func canChooseEncoding(name string) bool {
	folded := strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r | 0x20
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '-'
	}, name)
	switch folded {
	case "a-im", "available-dictionary", "dictionary-id", "sec-websocket-extensions": // RFC 3229, RFC 9842, RFC 7692
		return true
	case "grpc-encoding": // describes the request's body
		return false
	}
	own := strings.Contains(folded, "content-encoding") || strings.Contains(folded, "content-transfer-encoding")
	return !own && (strings.Contains(folded, "encoding") || strings.Contains(folded, "charset"))
}

// removeCharset rewrites Accept without the parameters that choose a character set. It drops values that it cannot
// parse.
func removeCharset(values []string) []string {
	named := func(text string) bool {
		text = strings.ToLower(text)
		return strings.Contains(text, "charset") || strings.Contains(text, "encoding") || strings.Contains(text, "codepage")
	}
	if !slices.ContainsFunc(values, named) {
		return values
	}
	var out []string
	for _, v := range values {
		ranges, ok := splitQuoted(v, ',')
		for i, r := range ranges {
			parts, closed := splitQuoted(r, ';')
			ok = ok && closed
			ranges[i] = strings.Join(slices.DeleteFunc(parts, named), ";")
		}
		ranges = slices.DeleteFunc(ranges, func(r string) bool { return strings.TrimSpace(r) == "" })
		// A name that the split did not isolate, such as one in a quoted string, drops the whole value.
		if text := strings.Join(ranges, ","); ok && text != "" && !named(text) {
			out = append(out, text)
		}
	}
	return out
}

// splitQuoted splits at a separator outside quoted strings (RFC 9110, section 5.6.4). It returns false if a quoted
// string does not end.
func splitQuoted(s string, sep byte) ([]string, bool) {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			// A backslash escapes the next byte, so a quote there does not end the string.
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:]), !quoted
}

// wantsCoding reports whether a request accepts a content coding.
func wantsCoding(h http.Header, coding string) bool {
	for _, v := range h["Accept-Encoding"] {
		for _, part := range strings.Split(v, ",") {
			name, q, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), coding) && strings.ReplaceAll(q, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}
