package catalog

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// config is the decoded config.json with defaults, before validation.
type config struct {
	description, reference, caFile string
	domains                        []string
	credentials                    []rawCredential
	restricted, allowed            []string // nil: absent
	private                        []string // nil: absent
	privateAll, allowHTTP, active  bool
	compress, internal             bool
	etag, framing                  string              // empty: absent
	clientCert                     *rawClientCert      // nil: absent
	server                         *mcpserver.Settings // nil: absent
	operations                     *Operations         // nil: absent
	rules                          []Rule              // nil: absent
	limits                         *Limits             // nil: absent
	idempotency                    string
}

// source is the place of a secret. Exactly one of value, file and env is set.
type source struct {
	value, file, env *string
	json             *string // nil: absent
}

// rawCredential is one entry of "credentials". It has either a source or mint.
type rawCredential struct {
	name string
	source
	mint        *rawMint
	kinds       int            // the number of mint kinds in the entry
	ttl         *time.Duration // nil: absent
	in          []string       // nil: absent
	placeholder *string        // nil: absent
}

// minted records a kind. The first kind counts; a second is an error.
func (c *rawCredential) minted(m *rawMint) {
	c.kinds++
	if c.mint == nil {
		c.mint = m
	}
}

// path returns the name of the credential's field for messages.
func (c rawCredential) path() string { return "credentials." + c.name }

// node is one value of a config.json.
type node = jsonread.Node

// decoder collects the mistakes of one config.json.
type decoder struct{ strictjson.Decoder }

// decode reads a whole config.json. It continues after a mistake, so that all mistakes are reported. It returns false
// if the text cannot be parsed at all.
func (d *decoder) decode(data []byte) (config, bool) {
	c := config{active: true}
	root := d.Root(data, `{"domains": ["api.example.com"]}`)
	if root == nil {
		return c, false
	}
	has, misspelt := topFields().decode(d, "", root, &c)
	// A misspelt field is already reported; it should not be reported as missing, too.
	if maps.Copy(has, misspelt); !has["domains"] && !has["mcp"] {
		d.Bad("domains", "missing", `at least one host name, e.g. ["api.example.com"]`)
	}
	if !has["description"] {
		d.Warn("description", "missing", "one line that tells a model what the API is for")
	}
	return c, true
}

func (d *decoder) private(c *config, n *node) {
	switch n.Kind {
	case jsonread.Bool:
		c.privateAll = n.Text == "true"
	case jsonread.List:
		c.private = d.List("allow_private", n, `["10.0.0.0/8"]`)
	default:
		d.Bad("allow_private", n.Kind.String(), `true, or a list of address ranges, e.g. ["10.0.0.0/8"]`)
	}
}

func (d *decoder) credentials(n *node) []rawCredential {
	if n.Kind != jsonread.Object {
		d.Bad("credentials", n.Kind.String(), `an object, e.g. {"EXAMPLE_TOKEN": "..."}`)
		return nil
	}
	if len(n.Members) > maxCredentials {
		d.Bad("credentials", fmt.Sprintf("%d credentials", len(n.Members)), fmt.Sprintf("at most %d", maxCredentials))
	}
	var out []rawCredential
	for _, m := range d.Unique("credentials.", n, ValidTokenName) {
		if problem := nameProblem(m.Key); problem != "" {
			d.badName(m, problem)
			continue
		}
		if c, ok := d.credential(m); ok {
			out = append(out, c)
		}
	}
	return out
}

// badName reports a bad token name without quoting it, because it may be a misplaced credential.
func (d *decoder) badName(m jsonread.Member, problem string) {
	field := fmt.Sprintf("credentials (line %d)", m.Node.Line)
	// The name and the credential are swapped: a common mistake.
	if m.Node.Kind == jsonread.String && nameProblem(m.Node.Text) == "" {
		d.Bad(field, "a token name where the credential belongs", `the token name first: "EXAMPLE_TOKEN": "the credential"`)
		return
	}
	d.Bad(field, "a token name "+problem, "5 to 64 of A-Z, 0-9 and _, starting with a letter, e.g. EXAMPLE_TOKEN")
}

// The limits of one API.
const (
	maxCredentials = 500
	maxDomains     = 1000
	maxMethods     = 100
	maxRanges      = 100
	maxSurfaces    = 100 // of one credential
)

// Bounds of a token name, in bytes.
const (
	minName = 5
	maxName = 64
)

// nameProblem returns why s is not a token name, or "".
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

func (d *decoder) credential(m jsonread.Member) (rawCredential, bool) {
	c, before := rawCredential{name: m.Key}, d.Count
	switch m.Node.Kind {
	case jsonread.String:
		c.value = new(string)
		d.Str(c.path(), m.Node, c.value)
		return c, d.Count == before
	case jsonread.Object:
	default:
		d.Bad(c.path(), m.Node.Kind.String(), `a string, or an object with "value", "file" or "env"`)
		return c, false
	}
	credentialFields().decode(d, c.path()+".", m.Node, &c)
	sources := c.count()
	switch {
	case sources+c.kinds > 1:
		d.Bad(c.path(), fmt.Sprintf("%d of %s", sources+c.kinds, kindList()), "exactly one of them")
	// After another mistake in the entry, the source may be there in a bad form.
	case sources+c.kinds == 0 && d.Count == before:
		d.Bad(c.path(), "none of "+kindList(), "exactly one of them")
	}
	return c, d.Count == before
}

// kindList lists the kinds of a credential for messages.
func kindList() string {
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

// source reads "value", "file" or "env". The result is never nil, so that a value of the wrong type counts as present.
func (d *decoder) source(field string, n *node) *string {
	s := new(string)
	d.Str(field, n, s)
	return s
}
