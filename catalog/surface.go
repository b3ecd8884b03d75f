package catalog

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxField bounds the name after the colon of a surface, in bytes.
const maxField = 128

var surfaceNames = [...]string{
	SurfaceNone: "none", SurfaceHeader: "header", SurfaceQuery: "query", SurfacePath: "path", SurfaceBody: "body",
	SurfaceCookie: "cookie",
}

// String returns the surface as in config.json, for example "header:X-Api-Key". The zero surface is "none".
func (s Surface) String() string {
	if s.Field == "" {
		return surfaceNames[s.Kind]
	}
	return surfaceNames[s.Kind] + ":" + s.Field
}

// ParseSurface reads one entry of a credential's "in". It returns header names in canonical form, and rejects sink
// headers.
func ParseSurface(s string) (Surface, error) {
	kind, field, named := strings.Cut(s, ":")
	if named && field == "" {
		return Surface{}, errors.New("missing a name after the colon")
	}
	if err := checkField(field); err != nil {
		return Surface{}, err
	}
	k := SurfaceKind(max(0, slices.Index(surfaceNames[:], kind)))
	switch {
	case k == SurfaceNone:
		return Surface{}, errors.New("not a surface")
	case k == SurfaceHeader && named:
		return parseHeaderSurface(field)
	// Any cookie would include those that a server publishes, such as a nickname.
	case k == SurfaceCookie && !isToken(field):
		return Surface{}, errors.New("not the name of a cookie")
	case k == SurfacePath && named:
		return Surface{}, errors.New("\"path\" with a name")
	}
	return Surface{k, field}, nil
}

func parseHeaderSurface(name string) (Surface, error) {
	if !isToken(name) {
		return Surface{}, errors.New("not a header name")
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if IsSinkHeader(name) {
		return Surface{}, fmt.Errorf("%s, a header that servers log, store or pass on", name)
	}
	return Surface{Kind: SurfaceHeader, Field: name}, nil
}

// checkField rejects names that no form, query or JSON object has, and names that could break a log line.
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

// IsSinkHeader reports whether servers publish, store or pass on a request header. A token name is never swapped there.
// The name may be in any letter case, and in any spelling that servers treat as the same.
func IsSinkHeader(name string) bool {
	name = FoldHeader(name)
	return slices.ContainsFunc(sinkPrefixes(), func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(sinkSuffixes(), func(s string) bool { return strings.HasSuffix(name, s) }) ||
		isMetadata(name) || isSink(strings.TrimPrefix(name, "x-"))
}

// sinkPrefixes are the beginnings of the names of sink headers.
func sinkPrefixes() []string {
	return []string{
		"content-", "if-", "x-forwarded", "proxy-", "sec-", "accept", "access-control-", "x-b3-", "x-datadog-",
		"x-http-method", "x-method-override", "x-original-", "uberctx-", "ot-baggage-", "ot-tracer-",
		// metadata of an object, an event or a prompt (Backblaze, Internet Archive, Azure, CloudEvents, Helicone)
		"x-bz-info-", "x-archive-", "x-ms-blob-", "ce-", "helicone-property-",
	}
}

// sinkSuffixes are the ends of the names of sink headers.
func sinkSuffixes() []string {
	return []string{
		"request-id", "trace-id", "correlation-id", "span-id", "traceparent", "baggage", "client-ip", "user-agent",
		"-tagging", "-tags", "-website-redirect-location", "-file-name", "-title", // S3 and its like, OpenRouter
	}
}

// isMetadata reports whether a folded name names metadata: X-Amz-Meta-Note, X-Archive-Meta00-Title, Upload-Metadata. A
// token for a metadata service is not a sink: X-Aws-Ec2-Metadata-Token.
func isMetadata(name string) bool {
	words := strings.Split(name, "-")
	for i, w := range words {
		last := i == len(words)-1
		if i > 0 && !last && strings.TrimRight(w, "0123456789") == "meta" || last && w == "metadata" {
			return true
		}
	}
	return false
}

// isSink reports whether a folded name, without the prefix X-, is the name of a single sink.
func isSink(name string) bool {
	switch name {
	case "cookie", "cookie2", "set-cookie", "host", "referer", "referrer", "origin", "forwarded", "via", "from", "link",
		"idempotency-key", "real-ip", "cf-connecting-ip", "remote-ip", "remote-addr", "remote-user", "tracestate", "trace",
		"b3", "sentry-trace", "cloud-trace-context", "amzn-requestid", "ot-span-context", "http-referer", "rewrite-url",
		"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "max-forwards",
		"range", "date", "cache-control", "pragma", "destination", "prefer", "priority", "warning",
		// published parts of a message or an object (ntfy in all its spellings, AtomPub, OpenRouter)
		"title", "t", "ti", "message", "m", "subject", "tags", "tag", "ta", "slug", "description", "filename", "file", "f",
		"click", "attach", "a", "icon", "actions", "action", "email", "mail", "e", "call":
		return true
	}
	return false
}

// IsSameHeader reports whether servers may treat two header names as the same. CGI and its successors ignore case, and
// replace every character other than letters and digits by the same one.
func IsSameHeader(a, b string) bool { return len(a) == len(b) && FoldHeader(a) == FoldHeader(b) }

// FoldHeader returns a header name without the differences that IsSameHeader ignores.
func FoldHeader(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2), as required for methods and header names.
func isToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }
