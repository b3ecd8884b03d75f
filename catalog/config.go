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

// configFile is the decoded config.json with defaults, before validation.
type configFile struct {
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

// secretSource is the place of a secret. Exactly one of value, file and env is set.
type secretSource struct {
	value, file, env *string
	json             *string // nil: absent
}

// rawCredential is one entry of "credentials". It has either a source or mint.
type rawCredential struct {
	name string
	secretSource
	mint        *rawMint
	kinds       int            // the number of mint kinds in the entry
	ttl         *time.Duration // nil: absent
	in          []string       // nil: absent
	placeholder *string        // nil: absent
	variable    *string        // nil: absent
}

// setMint records a kind. The first kind counts; a second is an error.
func (c *rawCredential) setMint(m *rawMint) {
	c.kinds++
	if c.mint == nil {
		c.mint = m
	}
}

// fieldPath returns the name of the credential's field for messages.
func (c rawCredential) fieldPath() string { return "credentials." + c.name }

// node is one value of a config.json.
type node = jsonread.Node

// configDecoder collects the mistakes of one config.json.
type configDecoder struct{ strictjson.Decoder }

// decodeConfig reads a whole config.json. It continues after a mistake, so that all mistakes are reported. It returns
// false if the text cannot be parsed at all.
func (d *configDecoder) decodeConfig(data []byte) (configFile, bool) {
	c := configFile{active: true}
	root := d.ReadRoot(data, `{"domains": ["api.example.com"]}`)
	if root == nil {
		return c, false
	}
	has, misspelt := topFields().decodeObject(d, "", root, &c)
	// A misspelt field is already reported; it should not be reported as missing, too.
	if maps.Copy(has, misspelt); !has["domains"] && !has["mcp"] {
		d.AddError("domains", "missing", `at least one host name, e.g. ["api.example.com"]`)
	}
	if !has["description"] {
		d.AddWarning("description", "missing", "one line that tells a model what the API is for")
	}
	return c, true
}

func (d *configDecoder) readPrivateRanges(c *configFile, n *node) {
	switch n.Kind {
	case jsonread.Bool:
		c.privateAll = n.Text == "true"
	case jsonread.List:
		c.private = d.ReadStrings("allow_private", n, `["10.0.0.0/8"]`)
	default:
		d.AddError("allow_private", n.Kind.String(), `true, or a list of address ranges, e.g. ["10.0.0.0/8"]`)
	}
}

func (d *configDecoder) readCredentials(n *node) []rawCredential {
	if n.Kind != jsonread.Object {
		d.AddError("credentials", n.Kind.String(), `an object, e.g. {"EXAMPLE_TOKEN": "..."}`)
		return nil
	}
	if len(n.Members) > maxCredentials {
		d.AddError("credentials", fmt.Sprintf("%d credentials", len(n.Members)), fmt.Sprintf("at most %d", maxCredentials))
	}
	var out []rawCredential
	for _, m := range d.ReadMembers("credentials.", n, ValidTokenName) {
		if problem := nameProblem(m.Key); problem != "" {
			d.reportBadName(m, problem)
			continue
		}
		if c, ok := d.readCredential(m); ok {
			out = append(out, c)
		}
	}
	return out
}

// reportBadName reports a bad token name without quoting it, because it may be a misplaced credential.
func (d *configDecoder) reportBadName(m jsonread.Member, problem string) {
	field := fmt.Sprintf("credentials (line %d)", m.Node.Line)
	// The name and the credential are swapped: a common mistake.
	if m.Node.Kind == jsonread.String && nameProblem(m.Node.Text) == "" {
		d.AddError(field, "a token name where the credential belongs",
			`the token name first: "EXAMPLE_TOKEN": "the credential"`)
		return
	}
	d.AddError(field, "a token name "+problem, "5 to 64 of A-Z, 0-9 and _, starting with a letter, e.g. EXAMPLE_TOKEN")
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

func (d *configDecoder) readCredential(m jsonread.Member) (rawCredential, bool) {
	c, before := rawCredential{name: m.Key}, d.Count
	switch m.Node.Kind {
	case jsonread.String:
		c.value = new(string)
		d.ReadString(c.fieldPath(), m.Node, c.value)
		return c, d.Count == before
	case jsonread.Object:
	default:
		d.AddError(c.fieldPath(), m.Node.Kind.String(), `a string, or an object with "value", "file" or "env"`)
		return c, false
	}
	credentialFields().decodeObject(d, c.fieldPath()+".", m.Node, &c)
	sources := c.countSources()
	switch {
	case sources+c.kinds > 1:
		d.AddError(c.fieldPath(), fmt.Sprintf("%d of %s", sources+c.kinds, kindList()), "exactly one of them")
	// After another mistake in the entry, the source may be there in a bad form.
	case sources+c.kinds == 0 && d.Count == before:
		d.AddError(c.fieldPath(), "none of "+kindList(), "exactly one of them")
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

func (s secretSource) countSources() (n int) {
	for _, p := range []*string{s.value, s.file, s.env} {
		if p != nil {
			n++
		}
	}
	return n
}

// readSource reads "value", "file" or "env". The result is never nil, so that a value of the wrong type counts as
// present.
func (d *configDecoder) readSource(field string, n *node) *string {
	s := new(string)
	d.ReadString(field, n, s)
	return s
}
