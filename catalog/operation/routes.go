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
	hosts map[string]*routeNode // by host name, with its port
	keys  []string              // for example "GET /v1/refunds", with the base path of the server
	size  int                   // the number of routes
}

// maxRoutes bounds the routes of one API. The largest common documents have a third of it. Each route takes a few
// hundred bytes of memory, but only two bytes of a document.
const maxRoutes = 1 << 17

// routeNode is a segment of paths, with the segments that may follow.
type routeNode struct {
	literal  map[string]*routeNode
	patterns []segmentPattern // segments with a parameter, each form once
	forms    map[string]*routeNode
	rest     []string // the methods of paths with {name+} at this position
	methods  []string // the methods of paths that end here
}

type segmentPattern struct {
	// parts are the texts around the parameters of a segment: "{id}.json" has "" and ".json".
	parts []string
	next  *routeNode
}

// maxSegments bounds the segments of a request's path.
const maxSegments = 64

// NewRoutes makes Routes without operations.
func NewRoutes() *Routes { return &Routes{hosts: map[string]*routeNode{}} }

// AddOperation adds an operation of a document. It skips an operation that only a query or a fragment distinguishes,
// because a server may also read a query's fields from a body. It also skips a path with more than maxSegments
// segments.
func (r *Routes) AddOperation(h Head, l Line) error {
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
		parsed = parsed.AtPort(uint16(port))
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
		at = r.newRoute()
		r.hosts[host] = at
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "+}") {
			at.rest = addMethod(at.rest, l.Method)
			at = nil
			break
		}
		at = at.addSegment(segment, r.newRoute)
	}
	if at != nil {
		at.methods = addMethod(at.methods, l.Method)
	}
	r.keys = append(r.keys, l.Method+" "+path)
	return nil
}

// newRoute makes a route and counts it.
func (r *Routes) newRoute() *routeNode {
	r.size++
	return &routeNode{}
}

// addMethod adds a method, and HEAD together with GET.
func addMethod(methods []string, m string) []string {
	if m == "GET" {
		methods = addMethod(methods, "HEAD")
	}
	if slices.Contains(methods, m) {
		return methods
	}
	return append(methods, m)
}

// addSegment returns the route after a segment. It makes the route if necessary.
func (r *routeNode) addSegment(segment string, made func() *routeNode) *routeNode {
	// A map lookup instead of a comparison with every pattern.
	if !strings.Contains(segment, "{") {
		if r.literal == nil {
			r.literal = map[string]*routeNode{}
		}
		if r.literal[segment] == nil {
			r.literal[segment] = made()
		}
		return r.literal[segment]
	}
	parts := splitParameters(segment)
	form := strings.Join(parts, "{")
	if r.forms == nil {
		r.forms = map[string]*routeNode{}
	}
	if r.forms[form] == nil {
		r.forms[form] = made()
		r.patterns = append(r.patterns, segmentPattern{parts, r.forms[form]})
	}
	return r.forms[form]
}

// splitParameters returns the texts around the parameters of a segment.
func splitParameters(segment string) []string {
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

// Allows reports whether a request is one of the operations. The path is as sent: escaped and without a query.
func (r *Routes) Allows(host, method, path string) bool {
	if r == nil || r.hosts[host] == nil {
		return false
	}
	segments, ok := splitPath(path)
	if !ok || !r.hosts[host].allowsSegments(segments, method) {
		return false
	}
	// A server behind a proxy that decodes paths may see a shorter path. Both must be allowed.
	cut, differs := cutAtQuery(segments)
	return !differs || r.hosts[host].allowsSegments(cut, method)
}

// cutAtQuery returns the segments that remain if a server ends the path at an escaped ? or #. That happens behind a
// proxy that decodes and does not encode again.
func cutAtQuery(segments []string) ([]string, bool) {
	for i, s := range segments {
		s = decodePlain(s)
		if at := strings.IndexAny(s, "?#"); at >= 0 {
			return append(slices.Clone(segments[:i]), s[:at]), true
		}
	}
	return nil, false
}

// decodePlain returns a plain segment without escapes.
func decodePlain(s string) string {
	for strings.Contains(s, "%") {
		next, err := url.PathUnescape(s)
		if err != nil || next == s {
			return s
		}
		s = next
	}
	return s
}

// splitPath splits a path. It returns false if servers may read the path in different ways.
func splitPath(path string) ([]string, bool) {
	if !strings.HasPrefix(path, "/") {
		return nil, false
	}
	list := strings.Split(path[1:], "/")
	if len(list) > maxSegments {
		return nil, false
	}
	for i, s := range list {
		if s == "" && i < len(list)-1 || !isPlainSegment(s) {
			return nil, false
		}
	}
	return list, true
}

// isPlainSegment reports whether every server reads a segment as one segment. Even decoded, it may not contain a
// separator, a control character, a dot segment, or bytes that are not UTF-8. Some servers take such bytes for
// separators or dots.
func isPlainSegment(s string) bool {
	if isSimple(s) {
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

// allowsSegments reports whether the method is allowed on the segments from this route on. Each route is at one depth,
// so it is visited once.
func (r *routeNode) allowsSegments(segments []string, method string) bool {
	if len(segments) == 0 {
		return slices.Contains(r.methods, method)
	}
	s := segments[0]
	if next := r.literal[s]; next != nil && next.allowsSegments(segments[1:], method) {
		return true
	}
	for _, p := range r.patterns {
		if matchesParts(p.parts, s) && p.next.allowsSegments(segments[1:], method) {
			return true
		}
	}
	// {name+} stands for at least one character.
	return slices.Contains(r.rest, method) && segments[len(segments)-1] != ""
}

// matchesParts reports whether a segment has these parts around values that are not empty. If there are such parts, a
// value may not contain a semicolon: some servers drop the rest of the segment after it.
func matchesParts(parts []string, s string) bool {
	if parts[0] != "" || parts[len(parts)-1] != "" || len(parts) > 2 {
		if strings.Count(decodePlain(s), ";") > strings.Count(strings.Join(parts, ""), ";") {
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
