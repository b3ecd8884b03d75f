package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// errCompressed is for a compressed response from a host that has credentials and whose API does not allow compression.
var errCompressed = errors.New("the response is compressed although the request did not accept that")

// compression is what a host may do to its responses. Where a response contains a credential next to text that the code
// chose, its compressed length, which the code can measure as time, distinguishes a right guess at part of the
// credential from a wrong one (as in BREACH). A page may show a credential to a session that an earlier request opened,
// so the host decides, not the request.
type compression struct {
	asked    bool // Accept-Encoding may name a content coding
	accepted bool // a compressed response is decoded and passed on
}

// compressionOf derives it from all APIs that hold a host, whether or not they are in this run.
func compressionOf(holders []*catalog.API) compression {
	c := compression{asked: len(holders) > 0, accepted: true}
	for _, a := range holders {
		c.asked = c.asked && a.Compress
		c.accepted = c.accepted && (a.Compress || len(a.Credentials) == 0)
	}
	//defence:compression instead compression{asked: true, accepted: true}
	return c
}

// judge refuses a response whose body is compressed where that is not allowed.
func (c compression) judge(resp *http.Response, method string) error {
	encodings, err := coding.ParseResponse(resp.Header)
	empty := method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified || resp.ContentLength == 0
	if c.accepted || err != nil || len(encodings) == 0 || empty { // an unknown coding is refused by scrub
		return nil
	}
	return errCompressed
}

// negotiate rewrites the headers by which a client negotiates the response's encoding: only the content codings that c
// allows, and no character set.
func (c compression) negotiate(h http.Header) {
	gzip := c.asked && accepts(h, "gzip")
	for name := range h {
		//defence:compression
		if choosesEncoding(name) {
			delete(h, name)
		}
	}
	if media := withoutCharset(h["Accept"]); len(media) > 0 {
		h["Accept"] = media
	} else {
		delete(h, "Accept")
	}
	h.Set("Accept-Encoding", "identity")
	if gzip {
		h.Set("Accept-Encoding", "gzip")
	}
}

// choosesEncoding reports whether a server may read a header's name as one that chooses a response's coding or
// character set. Behind CGI, WSGI and Rack all of Accept_Encoding, Accept.Encoding and Accept-Encoding are
// HTTP_ACCEPT_ENCODING. What describes the request's own body stays.
func choosesEncoding(name string) bool {
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
	case "grpc-encoding": // the request's own
		return false
	}
	own := strings.Contains(folded, "content-encoding") || strings.Contains(folded, "content-transfer-encoding")
	return !own && (strings.Contains(folded, "encoding") || strings.Contains(folded, "charset"))
}

// withoutCharset rewrites Accept without the parameters that choose a character set. A value that cannot be parsed is
// left out.
func withoutCharset(values []string) []string {
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
		if text := strings.Join(ranges, ","); ok && text != "" && !named(text) {
			out = append(out, text)
		}
	}
	return out
}

// splitQuoted splits at a separator outside quoted strings (RFC 9110, 5.6.4). It is false if a quoted string does not
// end.
func splitQuoted(s string, sep byte) ([]string, bool) {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
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

// accepts reports whether a request takes a content coding.
func accepts(h http.Header, coding string) bool {
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
