// Package tokenfile reads MCP_TOKENS_FILE: the tenants of one CodeForge, and the APIs and skills that each may use.
//
// It knows only the names of APIs, so mcp-server may import it, which has no credentials.
package tokenfile

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// Tenant is one of several clients of one CodeForge, with its tokens and permissions.
type Tenant struct {
	// Name has 1 to 32 of a-z, 0-9 and -, and begins with a letter or digit.
	Name string
	// Hashes are the SHA-256 hashes of the tenant's tokens. Without tokens and logins, a tenant's clients log in with
	// one-time codes.
	Hashes [][sha256.Size]byte
	// Logins are values of the claim OIDC_CLAIM. An access token with such a value belongs to the tenant.
	Logins []string
	// APIs are the names of the allowed APIs, at least one. Nil means all APIs.
	APIs []string
	// Skills are globs over the names of the shared skills that the tenant may use.
	Skills []string
	// Folders are the names of the host folders that the tenant's code sees, or "*" for all. By default it sees none.
	Folders []string
	// Runs is the number of runs at the same time, Waiting the number of further runs that may wait, and Timeout the
	// longest run. Zero means the server's bound.
	Runs, Waiting int
	Timeout       time.Duration
}

// allAPIs stands for all APIs, in a list with one entry.
const allAPIs = "*"

// tokenHash is the prefix of a token that is given as the hexadecimal digits of its SHA-256.
const tokenHash = "sha256:"

// The bounds of a tokens file.
const (
	maxName    = 32
	maxTenants = 1000
	maxTokens  = 10
	maxLogins  = 1000
	maxLogin   = 255 // bytes, as OpenID Connect bounds sub
	minToken   = 16
	maxAPIs    = 1000 // a catalog has no more APIs
	maxRuns    = 1000
	// MaxSize is the largest size of a tokens file in bytes.
	MaxSize = 1 << 20
)

// CanUseAPI reports whether the tenant may use an API.
func (t Tenant) CanUseAPI(api string) bool { return t.APIs == nil || slices.Contains(t.APIs, api) }

// CanUseSkill reports whether the tenant may use a shared skill.
func (t Tenant) CanUseSkill(skill string) bool {
	return slices.ContainsFunc(t.Skills, func(glob string) bool {
		ok, err := path.Match(glob, skill)
		return ok && err == nil
	})
}

// CanUseFolder reports whether the tenant's code sees a folder of the host.
func (t Tenant) CanUseFolder(name string) bool {
	return slices.Contains(t.Folders, name) || slices.Contains(t.Folders, "*")
}

// HasToken reports whether a hash is the SHA-256 of one of the tenant's tokens. The comparison takes the same time for
// every hash.
func (t Tenant) HasToken(hash [sha256.Size]byte) bool {
	found := 0
	for _, h := range t.Hashes {
		// No early exit: the time must not tell which token is closer.
		found |= subtle.ConstantTimeCompare(h[:], hash[:])
	}
	return found == 1
}

// fileDecoder reads a tokens file.
type fileDecoder struct{ strictjson.Decoder }

// Parse reads a tokens file. It reports every mistake, and quotes no token. file is the name of the file for messages.
// After any mistake the list of tenants is nil.
func Parse(data []byte, file string) ([]Tenant, strictjson.Problems) {
	d := &fileDecoder{strictjson.Decoder{File: file}}
	if len(data) > MaxSize {
		d.AddError("", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxSize))
		return nil, d.Problems
	}
	root := d.ReadRoot(data, example)
	if root == nil {
		return nil, d.Problems
	}
	var list []Tenant
	top := []string{"$schema", "tenants"}
	has, misspelt := d.ReadObject("", root, top, func(i int, field string, n *jsonread.Node) {
		if i == 0 {
			d.ReadString(field, n, new(string))
			return
		}
		list = d.readTenants(n)
	})
	if !has["tenants"] && !misspelt["tenants"] {
		d.AddError("tenants", "missing", "an object, e.g. "+example)
	}
	d.reportRepeatedTokens(list)
	d.reportRepeatedLogins(list)
	if more := d.Count - len(d.Problems); more > 0 {
		d.Problems = append(d.Problems, strictjson.MoreMistakes(strictjson.Problem{File: file}, more))
	}
	// A part of the tenants would silently lock out the others.
	if d.Count > 0 {
		return nil, d.Problems
	}
	return list, nil
}

const example = `{"tenants": {"alice": {"tokens": ["sha256:..."], "apis": ["stripe"]}}}`

func (d *fileDecoder) readTenants(n *jsonread.Node) []Tenant {
	if n.Kind != jsonread.Object || len(n.Members) == 0 {
		found := n.Kind.String()
		if n.Kind == jsonread.Object {
			found += " without any tenant"
		}
		d.AddError("tenants", found, "an object, e.g. "+example)
		return nil
	}
	if len(n.Members) > maxTenants {
		d.AddError("tenants", fmt.Sprintf("%d tenants", len(n.Members)), fmt.Sprintf("at most %d", maxTenants))
	}
	var list []Tenant
	for _, m := range d.ReadMembers("tenants.", n, isValidName) {
		if !isValidName(m.Key) { // not shown, because it may be a token
			d.AddError(fmt.Sprintf("tenants (line %d)", m.Node.Line), "a name that no tenant can have",
				fmt.Sprintf("1 to %d of a-z, 0-9 and -, the first one no -", maxName))
			continue
		}
		list = append(list, d.readTenant(m))
	}
	return list
}

func isValidName(name string) bool {
	return name != "" && len(name) <= maxName && name[0] != '-' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (d *fileDecoder) readTenant(m jsonread.Member) Tenant {
	t, at := Tenant{Name: m.Key}, "tenants."+m.Key
	if m.Node.Kind != jsonread.Object {
		d.AddError(at, m.Node.Kind.String(), `an object, e.g. {"tokens": ["sha256:..."], "apis": ["stripe"]}`)
		return t
	}
	fields := []string{"tokens", "logins", "apis", "skills", "folders", "runs", "waiting", "timeout"}
	has, misspelt := d.ReadObject(at+".", m.Node, fields, func(i int, field string, n *jsonread.Node) {
		switch fields[i] {
		case "tokens":
			t.Hashes = d.readTokens(field, n)
		case "logins":
			t.Logins = d.readLogins(field, n)
		case "apis":
			t.APIs = d.AtMost(field, d.ReadStrings(field, n, `["stripe"]`), maxAPIs)
		case "skills":
			t.Skills = d.readSkills(field, n)
		case "folders":
			t.Folders = d.readFolders(field, n)
		case "runs":
			d.readBound(field, n, &t.Runs)
		case "waiting":
			d.readBound(field, n, &t.Waiting)
		case "timeout":
			d.ReadDuration(field, n, &t.Timeout)
		}
	})
	maps.Copy(has, misspelt)
	const wantAPIs = `the names of APIs, or ["*"] for all`
	switch {
	case !has["apis"]:
		d.AddError(at+".apis", "missing", wantAPIs)
	// For the proxy an empty list would mean all APIs.
	case t.APIs != nil && len(t.APIs) == 0:
		d.AddError(at+".apis", "an empty list", wantAPIs)
	case slices.Contains(t.APIs, allAPIs) && len(t.APIs) > 1:
		d.AddError(at+".apis", `"*" among others`, `["*"] alone for all, or names`)
	case slices.Contains(t.APIs, allAPIs):
		t.APIs = nil
	}
	for i, name := range t.APIs {
		if slices.Contains(t.APIs[:i], name) {
			d.AddError(fmt.Sprintf("%s.apis[%d]", at, i), "an API that is there already", "each once")
		}
	}
	return t
}

// readTokens reads a list of tokens. No message quotes a token.
func (d *fileDecoder) readTokens(field string, n *jsonread.Node) (hashes [][sha256.Size]byte) {
	list := d.ReadStrings(field, n, `["sha256:..."]`)
	if list != nil && len(list) == 0 && len(n.ListItems()) == 0 {
		d.AddError(field, "an empty list", `at least one, e.g. ["sha256:..."]`)
	}
	for i, token := range d.AtMost(field, list, maxTokens) {
		at := fmt.Sprintf("%s[%d]", field, i)
		digits, hashed := strings.CutPrefix(token, tokenHash)
		sum, err := hex.DecodeString(digits)
		switch {
		case hashed && (err != nil || len(sum) != sha256.Size):
			d.AddError(at, "a hash that is not SHA-256", "64 hexadecimal digits after sha256:, as sha256sum prints them of the "+
				"token without a line feed")
			continue
		case hashed:
		case len(token) < minToken, strings.ContainsFunc(token, isUnprintable):
			d.AddError(at, "a token that is too short, or has other characters", fmt.Sprintf("at least %d printable ASCII "+
				"characters without spaces, or sha256: and the hash of them", minToken))
			continue
		default:
			own := sha256.Sum256([]byte(token))
			// Only the hash is kept in memory.
			sum = own[:]
		}
		hashes = append(hashes, [sha256.Size]byte(sum))
	}
	return hashes
}

// readLogins reads a list of values of a claim.
func (d *fileDecoder) readLogins(field string, n *jsonread.Node) []string {
	list := d.AtMost(field, d.ReadStrings(field, n, `["ann@example.com"]`), maxLogins)
	if list != nil && len(list) == 0 && len(n.ListItems()) == 0 {
		d.AddError(field, "an empty list", `at least one, e.g. ["ann@example.com"]`)
	}
	for i, login := range list {
		if login == "" || len(login) > maxLogin {
			d.AddError(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%d bytes", len(login)),
				fmt.Sprintf("1 to %d bytes", maxLogin))
		}
	}
	return list
}

func isUnprintable(r rune) bool { return r <= ' ' || r >= unicode.MaxASCII }

func (d *fileDecoder) readSkills(field string, n *jsonread.Node) []string {
	globs := d.ReadStrings(field, n, `["report-*"]`)
	for i, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil {
			d.AddError(fmt.Sprintf("%s[%d]", field, i), "a bracket that is not closed", `a name, or a glob like "report-*"`)
		}
	}
	return globs
}

func (d *fileDecoder) readFolders(field string, n *jsonread.Node) []string {
	list := d.ReadStrings(field, n, `["reports"]`)
	for i, name := range list {
		if name != "*" && !mcpserver.IsFolderName(name) {
			d.AddError(fmt.Sprintf("%s[%d]", field, i), "not the name of a folder", `names of codeforge folder list, or ["*"]`)
		}
	}
	return list
}

func (d *fileDecoder) readBound(field string, n *jsonread.Node, to *int) {
	before := d.Count
	d.ReadInt(field, n, to)
	if d.Count == before && (*to < 1 || *to > maxRuns) {
		d.AddError(field, fmt.Sprint(*to), fmt.Sprintf("a whole number from 1 to %d", maxRuns))
	}
}

// reportRepeatedTokens reports tokens that occur twice, because they would not identify a tenant.
func (d *fileDecoder) reportRepeatedTokens(list []Tenant) {
	owner := map[[sha256.Size]byte]string{}
	for _, t := range list {
		for i, h := range t.Hashes {
			at := fmt.Sprintf("tenants.%s.tokens[%d]", t.Name, i)
			if of, ok := owner[h]; ok {
				d.AddError(at, "a token that "+of+" has already", "each token once")
			}
			owner[h] = t.Name
		}
	}
}

// reportRepeatedLogins reports logins that occur twice, because they would not identify a tenant.
func (d *fileDecoder) reportRepeatedLogins(list []Tenant) {
	owner := map[string]string{}
	for _, t := range list {
		for i, login := range t.Logins {
			if of, ok := owner[login]; ok {
				d.AddError(fmt.Sprintf("tenants.%s.logins[%d]", t.Name, i), "a login that "+of+" has already",
					"each login once")
			}
			owner[login] = t.Name
		}
	}
}
