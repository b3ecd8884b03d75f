package catalog

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Tenant is one of several clients of one CodeForge, as MCP_TOKENS_FILE has it: what it is known by, and what it may
// use.
type Tenant struct {
	// Name is 1 to 32 of a-z, 0-9 and -, and begins with a letter or digit.
	Name string
	// Hashes are the SHA-256 of its tokens.
	Hashes [][sha256.Size]byte
	// APIs are the names of those it may use, at least one. Nil: all.
	APIs []string
	// Skills are globs over the names of the shared skills that it may use.
	Skills []string
	// Runs is how many runs it may have at once, Waiting how many more may wait, Timeout the longest run. Zero: the
	// server's own bound.
	Runs, Waiting int
	Timeout       time.Duration
}

// allAPIs stands for all of them, in a list of one entry.
const allAPIs = "*"

// tokenHash is what precedes a token that is given as the hexadecimal digits of its SHA-256.
const tokenHash = "sha256:"

// The bounds of a tokens file.
const (
	maxTenantName   = 32
	maxTenants      = 1000
	maxTenantTokens = 10
	minTenantToken  = 16
	maxTenantRuns   = 1000
	// MaxTokensFile is the largest tokens file, in bytes.
	MaxTokensFile = 1 << 20
)

// MayUse reports whether the tenant may use an API.
func (t Tenant) MayUse(api string) bool { return t.APIs == nil || slices.Contains(t.APIs, api) }

// Shares reports whether the tenant may use a shared skill.
func (t Tenant) Shares(skill string) bool {
	return slices.ContainsFunc(t.Skills, func(glob string) bool {
		ok, err := path.Match(glob, skill)
		return ok && err == nil
	})
}

// Has reports whether a token with this SHA-256 is one of the tenant's. It takes the same time whichever it is.
func (t Tenant) Has(hash [sha256.Size]byte) bool {
	found := 0
	for _, h := range t.Hashes {
		found |= subtle.ConstantTimeCompare(h[:], hash[:])
	}
	return found == 1
}

// tenantField is one field of a tenant.
type tenantField struct {
	name string
	read func(d *decoder, t *Tenant, field string, n *node)
}

// tenantFields are the fields of a tenant, in the order of the documentation.
func tenantFields() []tenantField {
	return []tenantField{
		{"tokens", (*decoder).tenantTokens},
		{"apis", func(d *decoder, t *Tenant, f string, n *node) {
			t.APIs = d.atMost(f, d.list(f, n, `["stripe"]`), maxAPIs)
		}},
		{"skills", (*decoder).tenantSkills},
		{"runs", func(d *decoder, t *Tenant, f string, n *node) { d.tenantBound(f, n, &t.Runs) }},
		{"waiting", func(d *decoder, t *Tenant, f string, n *node) { d.tenantBound(f, n, &t.Waiting) }},
		{"timeout", func(d *decoder, t *Tenant, f string, n *node) { d.duration(f, n, &t.Timeout) }},
	}
}

// ParseTenants reads a tokens file. It reports every mistake, and no token. File is its name in messages. With any
// mistake there are no tenants.
func ParseTenants(data []byte, file string) ([]Tenant, Problems) {
	d := &decoder{file: file}
	if len(data) > MaxTokensFile {
		d.bad("", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxTokensFile))
		return nil, d.problems
	}
	root, syntax := parseJSON(data)
	if syntax != nil {
		want := strings.Replace(syntax.want, `{"domains": ["api.example.com"]}`, tenantExample, 1)
		d.bad(fmt.Sprintf("line %d, column %d", syntax.line, syntax.column), syntax.found, want)
		return nil, d.problems
	}
	if root.kind != kindObject {
		d.bad("", string(root.kind), "an object, e.g. "+tenantExample)
		return nil, d.problems
	}
	var list []Tenant
	top := []string{"$schema", "tenants"}
	has := false
	for _, m := range d.unique("", root, func(key string) bool { return slices.Contains(top, key) }) {
		switch m.key {
		case "$schema":
			d.str(m.key, m.value, new(string))
		case "tenants":
			has, list = true, d.tenants(m.value)
		default:
			d.unknown("", m, top)
			has = has || nearest(m.key, top) == "tenants"
		}
	}
	if !has {
		d.bad("tenants", "missing", "an object, e.g. "+tenantExample)
	}
	d.tellTenantsApart(list)
	if more := d.count - len(d.problems); more > 0 {
		d.problems = append(d.problems, moreMistakes(Problem{File: file}, more))
	}
	if d.count > 0 {
		return nil, d.problems
	}
	return list, nil
}

const tenantExample = `{"tenants": {"alice": {"tokens": ["sha256:..."], "apis": ["stripe"]}}}`

func (d *decoder) tenants(n *node) []Tenant {
	if n.kind != kindObject || len(n.members) == 0 {
		found := string(n.kind)
		if n.kind == kindObject {
			found += " without any tenant"
		}
		d.bad("tenants", found, "an object, e.g. "+tenantExample)
		return nil
	}
	if len(n.members) > maxTenants {
		d.bad("tenants", fmt.Sprintf("%d tenants", len(n.members)), fmt.Sprintf("at most %d", maxTenants))
	}
	var list []Tenant
	for _, m := range d.unique("tenants.", n, validTenant) {
		if !validTenant(m.key) { // not shown: it may be a token
			d.bad(fmt.Sprintf("tenants (line %d)", m.line), "a name that no tenant can have",
				fmt.Sprintf("1 to %d of a-z, 0-9 and -, the first one no -", maxTenantName))
			continue
		}
		list = append(list, d.tenant(m))
	}
	return list
}

func validTenant(name string) bool {
	return name != "" && len(name) <= maxTenantName && name[0] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (d *decoder) tenant(m member) Tenant {
	t, at := Tenant{Name: m.key}, "tenants."+m.key
	if m.value.kind != kindObject {
		d.bad(at, string(m.value.kind), `an object, e.g. {"tokens": ["sha256:..."], "apis": ["stripe"]}`)
		return t
	}
	fields := tenantFields()
	var known []string
	for _, f := range fields {
		known = append(known, f.name)
	}
	has := map[string]bool{}
	for _, f := range d.unique(at+".", m.value, func(key string) bool { return slices.Contains(known, key) }) {
		i := slices.Index(known, f.key)
		if i < 0 {
			d.unknown(at+".", f, known)
			has[nearest(f.key, known)] = true
			continue
		}
		has[f.key] = true
		fields[i].read(d, &t, at+"."+f.key, f.value)
	}
	if !has["tokens"] {
		d.bad(at+".tokens", "missing", `at least one, e.g. ["sha256:..."]`)
	}
	const wantAPIs = `the names of APIs, or ["*"] for all`
	switch {
	case !has["apis"]:
		d.bad(at+".apis", "missing", wantAPIs)
	case t.APIs != nil && len(t.APIs) == 0: // to the proxy, no name would mean all of them
		d.bad(at+".apis", "an empty list", wantAPIs)
	case slices.Contains(t.APIs, allAPIs) && len(t.APIs) > 1:
		d.bad(at+".apis", `"*" among others`, `["*"] alone for all, or names`)
	case slices.Contains(t.APIs, allAPIs):
		t.APIs = nil
	}
	for i, name := range t.APIs {
		if slices.Contains(t.APIs[:i], name) {
			d.bad(fmt.Sprintf("%s.apis[%d]", at, i), "an API that is there already", "each once")
		}
	}
	return t
}

// tenantTokens reads tokens, of which it shows nothing.
func (d *decoder) tenantTokens(t *Tenant, field string, n *node) {
	list := d.list(field, n, `["sha256:..."]`)
	if list != nil && len(list) == 0 && len(n.items) == 0 {
		d.bad(field, "an empty list", `at least one, e.g. ["sha256:..."]`)
	}
	for i, token := range d.atMost(field, list, maxTenantTokens) {
		at := fmt.Sprintf("%s[%d]", field, i)
		digits, hashed := strings.CutPrefix(token, tokenHash)
		sum, err := hex.DecodeString(digits)
		switch {
		case hashed && (err != nil || len(sum) != sha256.Size):
			d.bad(at, "a hash that is not SHA-256", "64 hexadecimal digits after sha256:, as sha256sum prints them of the "+
				"token without a line feed")
			continue
		case hashed:
		case len(token) < minTenantToken, strings.ContainsFunc(token, unprintable):
			d.bad(at, "a token that is too short, or has other characters", fmt.Sprintf("at least %d printable ASCII "+
				"characters without spaces, or sha256: and the hash of them", minTenantToken))
			continue
		default:
			own := sha256.Sum256([]byte(token))
			sum = own[:]
		}
		t.Hashes = append(t.Hashes, [sha256.Size]byte(sum))
	}
}

func unprintable(r rune) bool { return r <= ' ' || r > unicode.MaxASCII || r == 0x7f }

func (d *decoder) tenantSkills(t *Tenant, field string, n *node) {
	t.Skills = d.list(field, n, `["report-*"]`)
	for i, glob := range t.Skills {
		if _, err := path.Match(glob, ""); err != nil {
			d.bad(fmt.Sprintf("%s[%d]", field, i), "a bracket that is not closed", `a name, or a glob like "report-*"`)
		}
	}
}

func (d *decoder) tenantBound(field string, n *node, to *int) {
	before := d.count
	d.whole(field, n, to)
	if d.count == before && (*to < 1 || *to > maxTenantRuns) {
		d.bad(field, fmt.Sprint(*to), fmt.Sprintf("a whole number from 1 to %d", maxTenantRuns))
	}
}

// tellTenantsApart reports tokens that are there twice: nobody could say whose they are.
func (d *decoder) tellTenantsApart(list []Tenant) {
	owner := map[[sha256.Size]byte]string{}
	for _, t := range list {
		for i, h := range t.Hashes {
			at := fmt.Sprintf("tenants.%s.tokens[%d]", t.Name, i)
			if of, ok := owner[h]; ok {
				d.bad(at, "a token that "+of+" has already", "each token once")
			}
			owner[h] = t.Name
		}
	}
}
