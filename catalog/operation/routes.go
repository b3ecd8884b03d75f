package operation

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/hostname"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// Routes are the operations of one API as requests have them. They allow what is surely one of them: a path that a
// server could read in another way is none.
type Routes struct {
	hosts map[string]*route
	keys  []string // "GET /v1/refunds", with the base path of its server
}

// route is a segment of paths, and those that may follow it.
type route struct {
	literal  map[string]*route
	patterns []pattern // segments with a parameter in them, each form once
	rest     []string  // the methods of paths that may go on for several segments from here
	methods  []string  // of paths that end here
}

type pattern struct {
	// parts are what stands around the parameters of a segment: "{id}.json" has "" and ".json".
	parts []string
	next  *route
}

// maxSegments bounds a path of a request.
const maxSegments = 64

// NewRoutes makes Routes without operations.
func NewRoutes() *Routes { return &Routes{hosts: map[string]*route{}} }

// Add adds an operation of a document. One that only a query or a fragment tells from others is none here: what a
// server takes from a query it may also take from a body.
func (r *Routes) Add(h Head, l Line) {
	server := h.Server
	if l.Server != "" {
		server = l.Server
	}
	u, err := url.Parse(server)
	if err != nil || strings.ContainsAny(l.Path, "?#") {
		return
	}
	parsed, err := hostname.Parse(u.Hostname())
	if err != nil {
		return
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		parsed = parsed.At(uint16(port))
	}
	host := parsed.String()
	at := r.hosts[host]
	if at == nil {
		at = &route{}
		r.hosts[host] = at
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/") + l.Path
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "+}") {
			at.rest = with(at.rest, l.Method)
			at = nil
			break
		}
		at = at.add(segment)
	}
	if at != nil {
		at.methods = with(at.methods, l.Method)
	}
	r.keys = append(r.keys, l.Method+" "+path)
}

// with adds a method, and HEAD to GET.
func with(methods []string, m string) []string {
	if m == "GET" {
		methods = append(methods, "HEAD")
	}
	return append(methods, m)
}

// add returns the route behind a segment.
func (r *route) add(segment string) *route {
	if !strings.Contains(segment, "{") {
		if r.literal == nil {
			r.literal = map[string]*route{}
		}
		if r.literal[segment] == nil {
			r.literal[segment] = &route{}
		}
		return r.literal[segment]
	}
	parts := around(segment)
	for _, p := range r.patterns {
		if strings.Join(p.parts, "{") == strings.Join(parts, "{") {
			return p.next
		}
	}
	next := &route{}
	r.patterns = append(r.patterns, pattern{parts, next})
	return next
}

// around is what stands around the parameters of a segment.
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

// Allow reports whether a request is one of the operations. The path is as it is sent, escaped and without a query.
func (r *Routes) Allow(host, method, path string) bool {
	if r == nil || r.hosts[host] == nil {
		return false
	}
	segments, ok := segments(path)
	return ok && r.hosts[host].allow(segments, method)
}

// segments splits a path, unless servers may read it in different ways.
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

// plain reports whether a segment is one for every server: nothing in it is, or decodes to, a separator, a control
// character, or a step to the same or the parent folder.
func plain(s string) bool {
	for range 3 {
		name, _, _ := strings.Cut(s, ";") // which some servers leave out
		if trimmed := strings.Trim(name, ". "); name != "" && trimmed == "" || name == "" && s != "" {
			return false
		}
		if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '/' || c == '\\' }) {
			return false
		}
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return false
		}
		if decoded == s {
			return true
		}
		s = decoded
	}
	return false // still encoded after two rounds
}

// allow reports whether the method may be used on the segments from here. Each route is looked at once, since it stands
// at one depth.
func (r *route) allow(segments []string, method string) bool {
	if len(segments) == 0 {
		return has(r.methods, method)
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
	return has(r.rest, method) && segments[len(segments)-1] != ""
}

func has(methods []string, m string) bool {
	for _, have := range methods {
		if have == m {
			return true
		}
	}
	return false
}

// fits reports whether a segment has these parts around values that are not empty.
func fits(parts []string, s string) bool {
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

// Nearest is the operation that a request most likely meant, or empty.
func (r *Routes) Nearest(method, path string) string {
	if r == nil {
		return ""
	}
	return Nearest(method, path, len(r.keys), func(i int) string { return r.keys[i] })
}

// farthest is how different the nearest operation may be, see distance.
const farthest = 1.3

// Nearest is the key, such as "GET /v1/refunds/{id}", that a request most likely meant, or empty.
func Nearest(method, path string, keys int, key func(int) string) string {
	best, least := "", farthest
	asked := strings.Split(strings.Trim(path, "/"), "/")
	if len(path) > MaxPath || len(asked) > maxSegments {
		return ""
	}
	for i := range keys {
		m, template, _ := strings.Cut(key(i), " ")
		d := distance(asked, template, least)
		if _, rest, ok := strings.Cut(strings.TrimPrefix(template, "/"), "/"); ok { // a base path was left out
			d = min(d, 0.5+distance(asked, rest, least))
		}
		if m != method {
			d += 0.3
		}
		if d < least {
			best, least = key(i), d
		}
	}
	return best
}

// distance is how different a path is from a template: a segment more or less is 1, another word up to 2, a value for a
// parameter a little.
func distance(asked []string, template string, limit float64) float64 {
	d, i := 0.0, 0
	for segment := range strings.SplitSeq(strings.Trim(template, "/"), "/") {
		switch {
		case i >= len(asked):
			d++
		case segment == asked[i]:
		case strings.Contains(segment, "{") && fits(around(segment), asked[i]):
			d += 0.05
		case strings.Contains(segment, "{"):
			d++
		default:
			most := max(len(segment), len(asked[i]))
			d += 2 * float64(typo.Distance(strings.ToLower(segment), strings.ToLower(asked[i]), most)) / float64(most)
		}
		if d >= limit {
			return d
		}
		i++
	}
	if i < len(asked) {
		d += float64(len(asked) - i)
	}
	return d
}

// Fits reports whether a path is one that a template stands for. It is for hints: see Routes for what is allowed.
func Fits(template, path string) bool {
	want, got := strings.Split(strings.Trim(template, "/"), "/"), strings.Split(strings.Trim(path, "/"), "/")
	for i, segment := range want {
		switch {
		case i >= len(got):
			return false
		case strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "+}"):
			return true
		case segment != got[i] && (!strings.Contains(segment, "{") || !fits(around(segment), got[i])):
			return false
		}
	}
	return len(want) == len(got)
}
