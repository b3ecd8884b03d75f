package operation

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/hostname"
)

// Routes are the operations of one API, for checking requests. They allow a request only if it is certainly an
// operation: a path that servers may read in different ways is rejected.
type Routes struct {
	hosts map[string]*route // by host name, with its port
	keys  []string          // for example "GET /v1/refunds", with the base path of the server
	size  int               // the number of routes
}

// maxRoutes bounds the routes of one API. The largest common documents have a third of it. Each route takes a few
// hundred bytes of memory, but only two bytes of a document.
const maxRoutes = 1 << 17

// route is a segment of paths, with the segments that may follow.
type route struct {
	literal  map[string]*route
	patterns []pattern // segments with a parameter, each form once
	forms    map[string]*route
	rest     []string // the methods of paths with {name+} at this position
	methods  []string // the methods of paths that end here
}

type pattern struct {
	// parts are the texts around the parameters of a segment: "{id}.json" has "" and ".json".
	parts []string
	next  *route
}

// maxSegments bounds the segments of a request's path.
const maxSegments = 64

// NewRoutes makes Routes without operations.
func NewRoutes() *Routes { return &Routes{hosts: map[string]*route{}} }

// Add adds an operation of a document. It skips an operation that only a query or a fragment distinguishes, because a
// server may also read a query's fields from a body. It also skips a path with more than maxSegments segments.
func (r *Routes) Add(h Head, l Line) error {
	server := h.Server
	if l.Server != "" {
		server = l.Server
	}
	u, err := url.Parse(server)
	if err != nil || strings.ContainsAny(l.Path, "?#") {
		return nil
	}
	parsed, err := hostname.Parse(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // no request can have such a host
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		parsed = parsed.At(uint16(port))
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/") + l.Path
	count := strings.Count(path, "/")
	if count > maxSegments {
		return nil
	}
	// Checked before the routes are made: a refused document needs no memory.
	if r.size+count+1 > maxRoutes {
		return fmt.Errorf("operations of more than %d different segments in their paths", maxRoutes)
	}
	host := parsed.String()
	at := r.hosts[host]
	if at == nil {
		at = r.route()
		r.hosts[host] = at
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "+}") {
			at.rest = with(at.rest, l.Method)
			at = nil
			break
		}
		at = at.add(segment, r.route)
	}
	if at != nil {
		at.methods = with(at.methods, l.Method)
	}
	r.keys = append(r.keys, l.Method+" "+path)
	return nil
}

// route makes a route and counts it.
func (r *Routes) route() *route {
	r.size++
	return &route{}
}

// with adds a method, and HEAD together with GET.
func with(methods []string, m string) []string {
	if m == "GET" {
		methods = with(methods, "HEAD")
	}
	if slices.Contains(methods, m) {
		return methods
	}
	return append(methods, m)
}

// add returns the route after a segment. It makes the route if necessary.
func (r *route) add(segment string, made func() *route) *route {
	// A map lookup instead of a comparison with every pattern.
	if !strings.Contains(segment, "{") {
		if r.literal == nil {
			r.literal = map[string]*route{}
		}
		if r.literal[segment] == nil {
			r.literal[segment] = made()
		}
		return r.literal[segment]
	}
	parts := around(segment)
	form := strings.Join(parts, "{")
	if r.forms == nil {
		r.forms = map[string]*route{}
	}
	if r.forms[form] == nil {
		r.forms[form] = made()
		r.patterns = append(r.patterns, pattern{parts, r.forms[form]})
	}
	return r.forms[form]
}

// around returns the texts around the parameters of a segment.
func around(segment string) []string {
	var out []string
	for {
		before, rest, ok := strings.Cut(segment, "{")
		out = append(out, before)
		if !ok {
			return out
		}
		_, segment, _ = strings.Cut(rest, "}")
	}
}

// Allow reports whether a request is one of the operations. The path is as sent: escaped and without a query.
func (r *Routes) Allow(host, method, path string) bool {
	if r == nil || r.hosts[host] == nil {
		return false
	}
	segments, ok := segments(path)
	if !ok || !r.hosts[host].allow(segments, method) {
		return false
	}
	// A server behind a proxy that decodes paths may see a shorter path. Both must be allowed.
	cut, differs := beforeQuery(segments)
	return !differs || r.hosts[host].allow(cut, method)
}

// beforeQuery returns the segments that remain if a server ends the path at an escaped ? or #. That happens behind a
// proxy that decodes and does not encode again.
func beforeQuery(segments []string) ([]string, bool) {
	for i, s := range segments {
		s = decoded(s)
		if at := strings.IndexAny(s, "?#"); at >= 0 {
			return append(slices.Clone(segments[:i]), s[:at]), true
		}
	}
	return nil, false
}

// decoded returns a plain segment without escapes.
func decoded(s string) string {
	for strings.Contains(s, "%") {
		next, err := url.PathUnescape(s)
		if err != nil || next == s {
			return s
		}
		s = next
	}
	return s
}

// segments splits a path. It returns false if servers may read the path in different ways.
func segments(path string) ([]string, bool) {
	if !strings.HasPrefix(path, "/") {
		return nil, false
	}
	list := strings.Split(path[1:], "/")
	if len(list) > maxSegments {
		return nil, false
	}
	for i, s := range list {
		if s == "" && i < len(list)-1 || !plain(s) {
			return nil, false
		}
	}
	return list, true
}

// plain reports whether every server reads a segment as one segment. Even decoded, it may not contain a separator, a
// control character, a dot segment, or bytes that are not UTF-8. Some servers take such bytes for separators or dots.
func plain(s string) bool {
	if simple(s) {
		return true
	}
	// A server behind another one may decode the segment again.
	for range 3 {
		name, _, _ := strings.Cut(s, ";") // some servers drop the text from a semicolon on
		if trimmed := strings.Trim(name, ". "); name != "" && trimmed == "" || name == "" && s != "" {
			return false
		}
		if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '/' || c == '\\' }) {
			return false
		}
		decoded, err := url.PathUnescape(s)
		if err != nil || !utf8.ValidString(decoded) {
			return false
		}
		if decoded == s {
			return true
		}
		s = decoded
	}
	return false // still encoded after two rounds
}

// allow reports whether the method is allowed on the segments from this route on. Each route is at one depth, so it is
// visited once.
func (r *route) allow(segments []string, method string) bool {
	if len(segments) == 0 {
		return slices.Contains(r.methods, method)
	}
	s := segments[0]
	if next := r.literal[s]; next != nil && next.allow(segments[1:], method) {
		return true
	}
	for _, p := range r.patterns {
		if fits(p.parts, s) && p.next.allow(segments[1:], method) {
			return true
		}
	}
	// {name+} stands for at least one character.
	return slices.Contains(r.rest, method) && segments[len(segments)-1] != ""
}

// fits reports whether a segment has these parts around values that are not empty. If there are such parts, a value may
// not contain a semicolon: some servers drop the rest of the segment after it.
func fits(parts []string, s string) bool {
	if parts[0] != "" || parts[len(parts)-1] != "" || len(parts) > 2 {
		if strings.Count(decoded(s), ";") > strings.Count(strings.Join(parts, ""), ";") {
			return false
		}
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			return len(s) > len(part) && strings.HasSuffix(s, part)
		}
		if len(s) == 0 {
			return false
		}
		at := strings.Index(s[1:], part)
		if at < 0 {
			return false
		}
		s = s[1+at+len(part):]
	}
	return s == ""
}
