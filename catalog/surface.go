package catalog

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// maxField bounds the name behind the colon of a surface, in bytes.
const maxField = 128

// String is the surface as config.json writes it, e.g. "header:X-Api-Key". The zero surface is "none".
func (s Surface) String() string {
	var kind string
	switch s.Kind {
	case SurfaceHeader:
		kind = "header"
	case SurfaceQuery:
		kind = "query"
	case SurfacePath:
		kind = "path"
	case SurfaceBody:
		kind = "body"
	default:
		return "none"
	}
	if s.Field == "" {
		return kind
	}
	return kind + ":" + s.Field
}

// ParseSurface reads one entry of a credential's "in". Header names come back in canonical form; names of sink headers
// are refused.
func ParseSurface(s string) (Surface, error) {
	kind, field, named := strings.Cut(s, ":")
	if named && field == "" {
		return Surface{}, errors.New("a colon without a name after it")
	}
	if err := checkField(field); err != nil {
		return Surface{}, err
	}
	switch kind {
	case "header":
		if !named {
			return Surface{Kind: SurfaceHeader}, nil
		}
		return parseHeaderSurface(field)
	case "query":
		return Surface{Kind: SurfaceQuery, Field: field}, nil
	case "body":
		return Surface{Kind: SurfaceBody, Field: field}, nil
	case "path":
		if named {
			return Surface{}, errors.New("a name after \"path\"")
		}
		return Surface{Kind: SurfacePath}, nil
	}
	return Surface{}, errors.New("no such surface")
}

func parseHeaderSurface(name string) (Surface, error) {
	if !isToken(name) {
		return Surface{}, errors.New("not a header name")
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if SinkHeader(name) {
		return Surface{}, fmt.Errorf("%s, a header that servers log, store or hand on", name)
	}
	return Surface{Kind: SurfaceHeader, Field: name}, nil
}

// checkField refuses names that no form, query or JSON object has, and those that would not survive a log line.
func checkField(field string) error {
	if len(field) > maxField {
		return fmt.Errorf("a name longer than %d bytes", maxField)
	}
	for _, r := range field {
		if r <= ' ' || r == 0x7f || r == '"' || r == '\uFFFD' || r == '&' || r == '=' {
			return errors.New("a name with a character that cannot be in one")
		}
	}
	return nil
}

// SinkHeader reports whether a request header is one that is published, stored or handed on, into which no token name
// is ever swapped. The name may be in any case, and in any spelling that servers make the same.
func SinkHeader(name string) bool {
	name = foldHeader(name)
	for _, p := range []string{
		"content-", "if-", "x-forwarded", "proxy-", "sec-", "accept", "access-control-", "x-b3-", "x-datadog-",
		"x-http-method", "x-method-override",
	} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	for _, suffix := range []string{"request-id", "trace-id", "correlation-id"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	if strings.Contains(name, "-meta-") {
		return true
	}
	switch name {
	case "cookie", "cookie2", "set-cookie", "host", "referer", "referrer", "origin", "user-agent",
		"forwarded", "via", "from", "link", "idempotency-key", "x-idempotency-key",
		"x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "cf-connecting-ip",
		"traceparent", "tracestate", "baggage", "b3", "sentry-trace", "x-cloud-trace-context", "x-amzn-requestid",
		"http-referer", "x-original-url", "x-rewrite-url",
		"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "max-forwards",
		"range", "date", "cache-control", "pragma", "destination",
		// what a message or an object is published with (ntfy, AtomPub, OpenRouter, S3, Azure)
		"title", "x-title", "message", "x-message", "subject", "x-subject", "tags", "x-tags", "slug", "description", "x-description",
		"x-amz-tagging", "x-ms-tags", "x-amz-website-redirect-location":
		return true
	}
	return false
}

// SameHeader reports whether servers may treat two header names as one: CGI and its successors ignore case, and turn every
// character that is neither a letter nor a digit into the same one.
func SameHeader(a, b string) bool { return len(a) == len(b) && foldHeader(a) == foldHeader(b) }

func foldHeader(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2, as methods and header names are.
func isToken(s string) bool {
	for i := range len(s) {
		b := s[i]
		alnum := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			return false
		}
	}
	return s != ""
}
