package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// config is config.json decoded, with defaults applied, not yet validated.
type config struct {
	description, reference, caFile string
	domains                        []string
	credentials                    []rawCredential
	restricted, allowed            []string // nil: absent
	private                        []string // nil: absent
	privateAll, allowHTTP, active  bool
	compress, internal             bool
	clientCert                     *rawClientCert // nil: absent
	server                         *Server        // nil: absent
	operations                     *Operations    // nil: absent
	rules                          []Rule         // nil: absent
	limits                         *Limits        // nil: absent
	idempotency                    string
}

// source is where a secret stands. Exactly one of value, file and env is set.
type source struct {
	value, file, env *string
	json             *string // nil: absent
}

// rawCredential is one entry of "credentials". It has a source, or mint is set.
type rawCredential struct {
	name string
	source
	mint        *rawMint
	kinds       int            // how many kinds of mint were given
	ttl         *time.Duration // nil: absent
	in          []string       // nil: absent
	placeholder *string        // nil: absent
}

// minted notes a kind. The first one counts; a second is an error.
func (c *rawCredential) minted(m *rawMint) {
	c.kinds++
	if c.mint == nil {
		c.mint = m
	}
}

// path is the credential's field in messages.
func (c rawCredential) path() string { return "credentials." + c.name }

// decoder collects the mistakes of one file.
type decoder struct {
	api, file string
	problems  Problems
	count     int // of all mistakes, those that are not reported included
	failed    bool
}

// maxProblems is how many mistakes of one file are reported.
const maxProblems = 100

func (d *decoder) bad(field, found, want string) {
	d.add(Problem{API: d.api, File: d.file, Field: field, Found: found, Want: want})
}

func (d *decoder) warn(field, found, want string) {
	d.add(Problem{API: d.api, File: d.file, Field: field, Found: found, Want: want, Severity: Warning})
}

// add records a mistake. The first error is always reported, and so is the number of mistakes left out.
func (d *decoder) add(p Problem) {
	d.count++
	if len(d.problems) < maxProblems || p.Severity == Error && !d.failed {
		d.problems = append(d.problems, p)
	}
	d.failed = d.failed || p.Severity == Error
}

// full reports whether further mistakes are only counted.
func (d *decoder) full() bool { return len(d.problems) >= maxProblems && d.failed }

// decode reads a whole config.json. It continues after a mistake, so that all are reported; it is false if the text
// cannot be parsed at all.
func (d *decoder) decode(data []byte) (config, bool) {
	c := config{active: true}
	root, syntax := parseJSON(data)
	if syntax != nil {
		d.bad(fmt.Sprintf("line %d, column %d", syntax.line, syntax.column), syntax.found, syntax.want)
		return c, false
	}
	if root.kind != kindObject {
		d.bad("", string(root.kind), `an object, e.g. {"domains": ["api.example.com"]}`)
		return c, false
	}
	topFields().decode(d, "", root, &c)
	has := present(root)
	if !has["domains"] && !has["mcp"] {
		d.bad("domains", "missing", `at least one host name, e.g. ["api.example.com"]`)
	}
	if !has["description"] {
		d.warn("description", "missing", "one line that tells a model what the API is for")
	}
	return c, true
}

// present returns the fields that the object has. A misspelt field counts as the one it resembles most. Only the first
// maxProblems unknown fields are compared.
func present(root *node) map[string]bool {
	known, has, unknown := topFields().names(), map[string]bool{}, 0
	for _, m := range root.members {
		switch {
		case slices.Contains(known, m.key):
			has[m.key] = true
		case unknown < maxProblems:
			unknown++
			has[nearest(m.key, known)] = true
		}
	}
	return has
}

// unique lists an object's members and reports keys that are repeated, of which it keeps the first.
func (d *decoder) unique(path string, n *node, known func(key string) bool) []member {
	first := map[string]int{}
	var out []member
	for _, m := range n.members {
		if line, dup := first[m.key]; dup {
			d.bad(label(path, m.key, known(m.key)),
				fmt.Sprintf("the same key on lines %d and %d", line, m.line), "each key once")
			continue
		}
		first[m.key] = m.line
		out = append(out, m)
	}
	return out
}

// unknown reports a field that does not exist, with the nearest one that does.
func (d *decoder) unknown(path string, m member, known []string) {
	if d.full() {
		d.count++
		return
	}
	near := nearest(m.key, known)
	want := "one of " + strings.Join(known, ", ")
	if near != "" {
		want = fmt.Sprintf("did you mean %q?", near)
	}
	d.bad(label(path, m.key, near != ""), fmt.Sprintf("unknown field on line %d", m.line), want)
}

// label is the field of a message about a key. A key that neither is nor resembles a known field may be a misplaced
// credential: it is shown only at the top level, and only if it looks like a word.
func label(path, key string, known bool) string {
	const longWord = 32
	word := path == "" && len(key) <= longWord && !strings.ContainsAny(key, "0123456789")
	if known || word {
		return path + printable(key)
	}
	return strings.TrimSuffix(path, ".")
}

// printable quotes a key for a message, unless it is a plain word.
func printable(key string) string {
	if isToken(key) {
		return cut(key)
	}
	return strconv.Quote(cut(key))
}

// cut shortens text that a message quotes.
func cut(s string) string { return visible.Cut(s, 80, "...") }

func (d *decoder) str(field string, n *node, to *string) {
	switch {
	case n.kind != kindString:
		d.bad(field, string(n.kind), "a string")
	case strings.ContainsRune(n.text, '\uFFFD'):
		d.bad(field, "a string with U+FFFD or half of a surrogate pair", "text saved as UTF-8")
	default:
		*to = n.text
	}
}

func (d *decoder) boolean(field string, n *node, to *bool) {
	if n.kind != kindBool {
		found := string(n.kind)
		if n.kind == kindString && (n.text == "true" || n.text == "false") {
			found = fmt.Sprintf("the string %q", n.text)
		}
		d.bad(field, found, "true or false, without quotes")
		return
	}
	*to = n.on
}

// list reads a list of strings. An empty list is not nil; a missing one is.
func (d *decoder) list(field string, n *node, example string) []string {
	out := []string{}
	if n.kind != kindList {
		d.bad(field, string(n.kind), "a list of strings, e.g. "+example)
		return nil
	}
	for i, item := range n.items {
		var s string
		before := d.count
		d.str(fmt.Sprintf("%s[%d]", field, i), item, &s)
		if d.count == before {
			out = append(out, s)
		}
	}
	return out
}

func (d *decoder) private(c *config, n *node) {
	switch n.kind {
	case kindBool:
		c.privateAll = n.on
	case kindList:
		c.private = d.list("allow_private", n, `["10.0.0.0/8"]`)
	default:
		d.bad("allow_private", string(n.kind), `true, or a list of address ranges, e.g. ["10.0.0.0/8"]`)
	}
}

func (d *decoder) credentials(n *node) []rawCredential {
	if n.kind != kindObject {
		d.bad("credentials", string(n.kind), `an object, e.g. {"EXAMPLE_TOKEN": "..."}`)
		return nil
	}
	if len(n.members) > maxCredentials {
		d.bad("credentials", fmt.Sprintf("%d credentials", len(n.members)), fmt.Sprintf("at most %d", maxCredentials))
	}
	var out []rawCredential
	for _, m := range d.unique("credentials.", n, ValidTokenName) {
		if problem := nameProblem(m.key); problem != "" {
			d.badName(m, problem)
			continue
		}
		if c, ok := d.credential(m); ok {
			out = append(out, c)
		}
	}
	return out
}

// badName reports a bad token name without showing it: it may be a misplaced credential.
func (d *decoder) badName(m member, problem string) {
	field := fmt.Sprintf("credentials (line %d)", m.line)
	if m.value.kind == kindString && nameProblem(m.value.text) == "" {
		d.bad(field, "a token name where the credential belongs", `the token name first: "EXAMPLE_TOKEN": "the credential"`)
		return
	}
	d.bad(field, "a token name "+problem, "5 to 64 of A-Z, 0-9 and _, starting with a letter, e.g. EXAMPLE_TOKEN")
}

// The limits of one API.
const (
	maxCredentials = 500
	maxDomains     = 1000
	maxMethods     = 100
	maxRanges      = 100
	maxSurfaces    = 100 // of one credential
)

// atMost returns the first entries of a list, and reports a list that has more.
func (d *decoder) atMost(field string, list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	d.bad(field, fmt.Sprintf("%d entries", len(list)), fmt.Sprintf("at most %d", most))
	return list[:most]
}

// Bounds of a token name, in bytes.
const (
	minName = 5
	maxName = 64
)

// nameProblem says why s is not a token name, or is empty.
func nameProblem(s string) string {
	switch {
	case len(s) < minName:
		return "shorter than 5 characters"
	case len(s) > maxName:
		return "longer than 64 characters"
	case s[0] < 'A' || s[0] > 'Z':
		return "that does not start with a capital letter"
	}
	for i := range len(s) {
		b := s[i]
		if (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '_' {
			return "with a character other than A-Z, 0-9 and _"
		}
	}
	return ""
}

// ValidTokenName reports whether s is [A-Z][A-Z0-9_]{4,63}.
func ValidTokenName(s string) bool { return nameProblem(s) == "" }

func (d *decoder) credential(m member) (rawCredential, bool) {
	c, before := rawCredential{name: m.key}, d.count
	switch m.value.kind {
	case kindString:
		c.value = new(string)
		d.str(c.path(), m.value, c.value)
		return c, d.count == before
	case kindObject:
	default:
		d.bad(c.path(), string(m.value.kind), `a string, or an object with "value", "file" or "env"`)
		return c, false
	}
	credentialFields().decode(d, c.path()+".", m.value, &c)
	sources := c.count()
	switch {
	case sources+c.kinds > 1:
		d.bad(c.path(), fmt.Sprintf("%d of %s", sources+c.kinds, d.kindList()), "exactly one of them")
	case sources+c.kinds == 0 && d.count == before:
		d.bad(c.path(), "none of "+d.kindList(), "exactly one of them")
	}
	return c, d.count == before
}

// kindList names what a credential may be, for messages.
func (d *decoder) kindList() string {
	var quoted []string
	for _, name := range append([]string{"value", "file", "env"}, append(mintKindNames(), kindCommand)...) {
		quoted = append(quoted, strconv.Quote(name))
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " and " + quoted[last]
}

func (s source) count() (n int) {
	for _, p := range []*string{s.value, s.file, s.env} {
		if p != nil {
			n++
		}
	}
	return n
}

// source reads "value", "file" or "env". It is never nil, so that one of the wrong type counts as present.
func (d *decoder) source(field string, n *node) *string {
	s := new(string)
	d.str(field, n, s)
	return s
}
