package catalog

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// configValidator turns a config into an API, or reports problems.
type configValidator struct {
	configDecoder
	root   *os.Root
	getenv func(string) string
	budget *readBudget
	soon   bool // see Options.Soon
}

// buildAPI checks all parts of a config, even after mistakes, so that one load reports every mistake.
func (v *configValidator) buildAPI(c configFile) *API {
	a := &API{Name: v.API, Active: c.active, AllowHTTP: c.allowHTTP, Compress: c.compress,
		KeepETag: c.etag == etagKeep, MessageFraming: c.framing == framingMessage}
	a.Description = v.readDescription(c.description)
	a.Reference = v.readReference(c.reference)
	a.Hosts = v.parseHosts(c.domains)
	a.Methods = v.buildMethods(c)
	a.Rules, a.ToolRules = v.splitRules(c.rules, c.server != nil)
	a.Limits, a.Idempotency = c.limits, c.idempotency
	a.AllowPrivate = v.compileRanges(c)
	a.CAs = v.readCAs(c.caFile)
	a.Credentials = convert.Each(c.credentials, v.buildCredential)
	slices.SortFunc(a.Credentials, func(x, y Credential) int { return strings.Compare(x.Name, y.Name) })
	v.checkVariables(a.Credentials)
	a.Internal = c.internal
	a.ClientCert = v.buildClientCert(c.clientCert)
	// After hosts and credentials: the check compares both.
	v.checkSigners(a)
	v.addServer(a, c.server)
	v.checkResources(a)
	a.Operations = v.buildOperations(c.operations)
	if a.AllowHTTP && len(a.Credentials) > 0 {
		v.AddWarning("allow_http", "credentials of this API may cross the network in clear text",
			"HTTPS wherever the API has it")
	}
	if a.Compress && len(a.Credentials) > 0 {
		v.AddWarning("compress", "an API with credentials whose responses may be compressed: if one contains a credential "+
			"and text from the request, its length reveals whether that text repeats a part of the credential",
			"true only if no response of the API ever contains a credential")
	}
	if a.KeepETag && len(a.Credentials) > 0 {
		v.AddWarning("etag",
			"an API with credentials whose responses keep their ETag: if a response contains a credential, its "+
				"ETag can be a digest by which code verifies a guess", "\"keep\" only if no response of the API ever contains a "+
				"credential")
	}
	if a.MessageFraming && len(a.Credentials) > 0 {
		v.AddWarning("framing",
			"an API with credentials whose messages leave one by one: a credential that a server splits over "+
				"two messages reaches the code", "no such field, unless a stream of the API stands still without it")
	}
	return a
}

// The values of "etag" and "framing".
const (
	etagKeep       = "keep"
	framingMessage = "message"
)

// readWord reads a field with only one allowed value.
func (d *configDecoder) readWord(field string, n *node, to *string, only string) {
	d.ReadString(field, n, to)
	if n.Kind == jsonread.String && *to != only {
		d.AddError(field, "another word", fmt.Sprintf("%q, or no such field", only))
	}
}

// maxDescription bounds a description in characters. It keeps list_apis, which a model reads, short.
const maxDescription = 500

func (v *configValidator) readDescription(s string) string {
	n := utf8.RuneCountInString(s)
	switch {
	case n > maxDescription:
		v.AddError("description", fmt.Sprintf("%d characters", n), fmt.Sprintf("at most %d", maxDescription))
	case strings.ContainsFunc(s, unicode.IsControl):
		v.AddError("description", "a line break or control character", "one line of text")
	}
	return s
}

func (v *configValidator) readReference(s string) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	page := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
	if !page || strings.ContainsFunc(s, unicode.IsControl) {
		v.AddError("reference", "not the address of a page",
			"a URL that starts with https://, e.g. https://docs.example.com/api")
	}
	return s
}

func (v *configValidator) parseHosts(domains []string) []HostPattern {
	if domains != nil && len(domains) == 0 {
		v.AddError("domains", "an empty list", `at least one host name, e.g. ["api.example.com"]`)
	}
	// The other entries are read too: if the API is rejected, all its hosts must be closed.
	v.AtMost("domains", domains, maxDomains)
	var out []HostPattern
	seen := map[HostPattern]bool{}
	for i, d := range domains {
		p, err := ParseHostPattern(d)
		if err == nil && isOwnPattern(p) {
			err = errReserved
		}
		switch {
		case err == nil && !seen[p]:
			seen[p], out = true, append(out, p)
		case v.IsFull():
			v.Count++
		case err != nil:
			v.AddError(fmt.Sprintf("domains[%d]", i), quoteFound(d, err), wantHost(d))
		default:
			v.AddWarning(fmt.Sprintf("domains[%d]", i), strconv.Quote(p.String())+" listed twice", "each name once")
		}
	}
	return out
}

// ownDomain is CodeForge's domain. The proxy answers for the hosts below it, and no API may include them.
const ownDomain = "codeforge.internal"

var errReserved = errors.New("CodeForge's own name")

// IsOwnHost reports whether a host is CodeForge's, which no API can include.
func IsOwnHost(h Host) bool {
	return h.Name() == ownDomain || strings.HasSuffix(h.Name(), "."+ownDomain)
}

func isOwnPattern(p HostPattern) bool {
	return p.Name() == ownDomain || strings.HasSuffix(p.Name(), "."+ownDomain)
}

// quoteFound quotes the user's text with its mistake. It does not quote text that may contain a password or a key.
func quoteFound(s string, err error) string {
	if strings.ContainsAny(s, "@?#") {
		return err.Error()
	}
	return fmt.Sprintf("%q is %v", strictjson.CutQuote(s), err)
}

// quoteChoice describes a wrong value of a field with few possible values. It quotes only a short word, because longer
// texts may be credentials in the wrong field.
func quoteChoice(s string) string {
	if shortWord.MatchString(s) {
		return strconv.Quote(s)
	}
	return "missing or something else"
}

var shortWord = regexp.MustCompile(`^[A-Za-z-]{1,12}$`)

// wantHost suggests a valid entry for a bad one in "domains".
func wantHost(s string) string {
	const want = `a host name like "api.example.com" or "*.example.com"`
	if p, err := ParseHostPattern(s); err == nil && isOwnPattern(p) {
		return want
	}
	s = strings.TrimSpace(s)
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		s = u.Host
	}
	s, _, _ = strings.Cut(s, "/")
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = s[i+1:]
	}
	name, _, _ := strings.Cut(s, ":")
	for _, s := range []string{s, name} {
		if p, err := ParseHostPattern(s); err == nil {
			return fmt.Sprintf("%q", p.String())
		}
	}
	return want
}

func (v *configValidator) buildMethods(c configFile) Methods {
	if c.restricted != nil && c.allowed != nil {
		v.AddError("allowed_methods", "restricted_methods is set too", "one of the two")
	}
	if c.allowed != nil && len(c.allowed) == 0 {
		v.AddError("allowed_methods", "an empty list, which refuses everything", `at least one method, e.g. ["GET"]`)
	}
	return Methods{
		Restricted: v.parseMethods("restricted_methods", c.restricted),
		Allowed:    v.parseMethods("allowed_methods", c.allowed),
	}
}

func (v *configValidator) parseMethods(field string, list []string) []string {
	var out []string
	for i, text := range v.AtMost(field, list, maxMethods) {
		path := fmt.Sprintf("%s[%d]", field, i)
		m, err := parseMethod(text)
		switch {
		case err != nil:
			v.AddError(path, quoteFound(text, err), `a method like "POST"`)
			continue
		case field == "allowed_methods" && (m == "TRACE" || m == "CONNECT"):
			v.AddError(path, strconv.Quote(m)+", which is refused for every API", "a method like \"GET\"")
			continue
		case slices.Contains(out, m):
			v.AddWarning(path, strconv.Quote(m)+" listed twice", "each method once")
			continue
		case !slices.Contains(knownMethods(), m):
			// A misspelt method in restricted_methods would stay open.
			if near := nearMethod(m); near != "" {
				v.AddError(path, strconv.Quote(text)+", which is not a known method", fmt.Sprintf("did you mean %q?", near))
				continue
			}
			v.AddWarning(path, strconv.Quote(m)+", which is not a known method",
				"one of "+strings.Join(knownMethods()[:7], ", "))
		}
		out = append(out, m)
	}
	slices.Sort(out)
	return out
}

// compileRanges compiles allow_private.
func (v *configValidator) compileRanges(c configFile) []netip.Prefix {
	if c.privateAll {
		return PrivateRanges()
	}
	var out []netip.Prefix
	if c.private != nil && len(c.private) == 0 {
		v.AddWarning("allow_private", "an empty list", "no list, which means the same")
	}
	for i, text := range v.AtMost("allow_private", c.private, maxRanges) {
		p, want := parseRange(text)
		if want != "" {
			v.AddError(fmt.Sprintf("allow_private[%d]", i), strconv.Quote(strictjson.CutQuote(text)), want)
			continue
		}
		if uniqueLocal.Contains(p.Addr()) && p.Bits() < siteBits {
			v.AddWarning(fmt.Sprintf("allow_private[%d]", i),
				fmt.Sprintf("%q, which opens no address: clouds have metadata services there", text),
				fmt.Sprintf("the range of a site, like \"%s/%d\"", p.Addr(), siteBits))
		}
		out = append(out, p)
	}
	return out
}

// readCAs reads and checks ca_file.
func (v *configValidator) readCAs(name string) []byte {
	if name == "" {
		return nil
	}
	data, err := v.readNamed(name, maxCAs)
	if err != nil {
		v.addReadError("ca_file", name, "a PEM file", err)
		return nil
	}
	count, rest := 0, data
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			v.AddError("ca_file", fmt.Sprintf("a PEM block %q", strictjson.CutQuote(block.Type)), "CERTIFICATE blocks only")
			return nil
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			v.AddError("ca_file", fmt.Sprintf("certificate %d does not parse", count+1), "an X.509 certificate")
			return nil
		}
		count++
	}
	if count == 0 {
		v.AddError("ca_file", "no certificate in the file", "PEM: -----BEGIN CERTIFICATE-----")
		return nil
	}
	return data
}
