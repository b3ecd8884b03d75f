package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// addServer checks "mcp" and adds it to the API. Call it after the API's credentials are set.
func (v *configValidator) addServer(a *API, s *mcpserver.Settings) {
	if s == nil {
		return
	}
	a.Server = s
	v.serverURL(a, s)
	v.warnWithoutHosts(a)
	v.serverPackage(s.Package)
	v.serverRegistry(s)
	v.checkConstraints(s)
	v.serverCommand(s.Command)
	for i, arg := range v.AtMost("mcp.args", s.Args, maxServerList) {
		v.checkConstant(a, fmt.Sprintf("mcp.args[%d]", i), "", arg)
	}
	v.serverEnv(a, s.Env)
	v.serverHeaders(a, s.Headers)
	v.checkWord("mcp.transport", s.Transport, serverTransports())
	v.checkWord("mcp.state", s.State, serverStates())
	s.Pins = cmp.Or(s.Pins, serverPins()[0])
	v.checkWord("mcp.pins", s.Pins, serverPins())
	if s.Pins != "off" {
		s.Pins = ""
	}
	for i, p := range v.AtMost("mcp.permissions", s.Permissions, maxServerList) {
		v.checkWord(fmt.Sprintf("mcp.permissions[%d]", i), p, []string{"run"})
	}
	for i, name := range v.AtMost("mcp.folders", s.Folders, maxServerList) {
		if !mcpserver.IsFolderName(name) || slices.Contains(s.Folders[:i], name) {
			v.AddError(fmt.Sprintf("mcp.folders[%d]", i), strconv.Quote(strictjson.CutQuote(name)),
				"the name of a folder that codeforge folder list shows, once")
		}
	}
	if s.Protocol != "" && !regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`).MatchString(s.Protocol) {
		v.AddError("mcp.protocol", strconv.Quote(strictjson.CutQuote(s.Protocol)),
			`a revision of the protocol, e.g. "2025-11-25"`)
	}
	v.checkGlobs("mcp.tools.allow", s.Allow)
	v.checkGlobs("mcp.tools.deny", s.Deny)
	if s.Allow != nil && len(s.Allow) == 0 {
		v.AddError("mcp.tools.allow", "an empty list, which refuses everything", `at least one name, e.g. ["get_*"]`)
	}
	if s.MaxConcurrent < 1 || s.MaxConcurrent > maxServerConcurrent {
		v.AddError("mcp.max_concurrent", strconv.Itoa(s.MaxConcurrent), fmt.Sprintf("1 to %d", maxServerConcurrent))
	}
	v.AtMost("mcp.exclusive_with", s.ExclusiveWith, maxServerList)
	for i, name := range s.ExclusiveWith {
		if folderProblem(name) != "" || name == "" {
			v.AddError(fmt.Sprintf("mcp.exclusive_with[%d]", i), "not the name of an API", "the name of a folder in apis/")
		}
	}
}

// warnWithoutHosts warns of fields about requests if a server has no host, so that no request can match them.
func (v *configValidator) warnWithoutHosts(a *API) {
	warn := func(field string, isSet bool) {
		if isSet && len(a.Hosts) == 0 {
			v.AddWarning(field, "without effect: it is about requests, and the server has no host",
				`"domains", or "rules" with "tools"`)
		}
	}
	warn("limits", a.Limits != nil)
	warn("rules", a.Rules != nil)
	warn("restricted_methods", a.Methods.Restricted != nil)
	warn("allowed_methods", a.Methods.Allowed != nil)
	warn("idempotency", a.Idempotency != "")
}

// serverHost returns the host of a URL as a host pattern, with the port unless it is the default port.
func serverHost(text string) (HostPattern, error) {
	u, err := url.Parse(text)
	if err != nil {
		return HostPattern{}, err
	}
	h, err := ParseHost(u.Hostname())
	if err != nil {
		return HostPattern{}, err
	}
	if port := u.Port(); port != "" && port != map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		return ParseHostPattern(h.String() + ":" + port)
	}
	return ParseHostPattern(h.String())
}

// serverURL checks a remote server's URL. It adds the host to the API's hosts.
func (v *configValidator) serverURL(a *API, s *mcpserver.Settings) {
	if s.URL == "" {
		return
	}
	const want = `a URL like "https://mcp.example.com/mcp"`
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || strings.ContainsFunc(s.URL, unicode.IsControl),
		u.Scheme != "https" && u.Scheme != "http":
		v.AddError("mcp.url", "not the address of a server", want)
		return
	case u.User != nil:
		v.AddError("mcp.url", "a URL with a user", `the token name in mcp.headers, and the credential in "credentials"`)
		return
	case u.Fragment != "":
		v.AddError("mcp.url", "a URL with a fragment", want)
		return
	case u.Scheme == "http" && !a.AllowHTTP:
		v.AddError("mcp.url", "a URL of plain HTTP", `https://, or "allow_http": true`)
		return
	}
	host, err := serverHost(s.URL)
	if err == nil && isOwnPattern(host) {
		err = errReserved
	}
	if err != nil {
		v.AddError("mcp.url", "a URL whose host is "+err.Error(), want)
		return
	}
	// A credential in the path or the query would be visible to the model.
	v.checkConstant(a, "mcp.url", "", u.Path)
	for name, values := range u.Query() {
		for _, value := range values {
			v.checkConstant(a, "mcp.url", name, value)
		}
	}
	// A wildcard in domains does not open the server's host to code.
	if !slices.Contains(a.Hosts, host) {
		a.ServerHost = host.String()
	}
	if !a.CoversHost(host.String()) {
		a.Hosts = append(a.Hosts, host)
	}
}

// serverRegistry checks the address of a package's registry by the rules for PACKAGE_REGISTRY.
func (v *configValidator) serverRegistry(s *mcpserver.Settings) {
	switch {
	case s.Registry == "" && strings.HasPrefix(s.Package, "pypi:"):
		v.AddError("mcp.registry", "missing", "the address of a package index, which codeforge mcp add writes")
	case s.Registry != "" && !isRegistry(s.Registry):
		v.AddError("mcp.registry", "not the address of a registry", wantRegistry)
	}
	for i, host := range v.AtMost("mcp.registry_hosts", s.RegistryHosts, maxServerList) {
		if _, err := ParseHost(host); err != nil {
			v.AddError(fmt.Sprintf("mcp.registry_hosts[%d]", i), "not the name of a host", `a host, e.g. "files.example.com"`)
		}
	}
}

// CoversHost reports whether one of the API's patterns covers a host.
func (a *API) CoversHost(host string) bool {
	_, parent, _ := strings.Cut(host, ".")
	return slices.ContainsFunc(a.Hosts, func(p HostPattern) bool {
		return p.String() == host || p.String() == "*."+parent
	})
}

// maxPackageName bounds a package's name with its version, in bytes.
const maxPackageName = 256

// packageName matches an npm name with an exact version (https://semver.org) and optionally a program of the package.
var packageName = regexp.MustCompile(`^npm:(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*` +
	`@(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)

// pypiPackage matches a name of PyPI with an exact version (PEP 440), and optionally extras and a program of the
// package. constraintPattern matches a package with limits on its version, without spaces, extras and markers.
var (
	pypiPackage = regexp.MustCompile(`^pypi:[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?` +
		`(\[[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*\])?@([0-9]+!)?[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?` +
		`(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`)
	constraintPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?` +
		`(<|<=|!=|==|>=|>|~=)[0-9][0-9A-Za-z.*+!-]*(,(<|<=|!=|==|>=|>|~=)[0-9][0-9A-Za-z.*+!-]*)*$`)
)

func (v *configValidator) checkConstraints(s *mcpserver.Settings) {
	if s.Constraints != nil && !strings.HasPrefix(s.Package, "pypi:") {
		v.AddError("mcp.constraints", "constraints of a server that is not a package of PyPI",
			`"package": "pypi:NAME@VERSION"`)
	}
	for i, c := range v.AtMost("mcp.constraints", s.Constraints, maxServerList) {
		if !constraintPattern.MatchString(c) || len(c) > maxField {
			v.AddError(fmt.Sprintf("mcp.constraints[%d]", i), strconv.Quote(strictjson.CutQuote(c)),
				`a package and its versions without spaces, e.g. "mcp<2"`)
		}
	}
}

func (v *configValidator) serverPackage(s string) {
	switch {
	case s == "" || len(s) <= maxPackageName && (packageName.MatchString(s) || pypiPackage.MatchString(s)):
		return
	case strings.HasPrefix(s, "pypi:"):
		v.AddError("mcp.package", strconv.Quote(strictjson.CutQuote(s))+", which is not a name and an exact version",
			`"pypi:mcp-server-fetch@2025.4.7": an unpinned package (uvx, a range, latest) runs the version published next`)
	case !strings.HasPrefix(s, "npm:"):
		v.AddError("mcp.package", strconv.Quote(strictjson.CutQuote(s)),
			`a package of npm or PyPI, e.g. "npm:@scope/server@1.2.3" or "pypi:mcp-server-fetch@2025.4.7"`)
	default:
		v.AddError("mcp.package", strconv.Quote(strictjson.CutQuote(s))+", which is not a name and an exact version",
			`"npm:@scope/server@1.2.3": an unpinned package (npx -y, a range, latest) runs the version published next`)
	}
}

func (v *configValidator) serverCommand(command []string) {
	if command != nil && len(command) == 0 {
		v.AddError("mcp.command", "an empty list", `a program and its arguments, e.g. ["github-mcp-server", "stdio"]`)
	}
	for i, word := range v.AtMost("mcp.command", command, maxServerList) {
		// An empty API: token names are not swapped in a command line.
		v.checkConstant(&API{}, fmt.Sprintf("mcp.command[%d]", i), "", word)
		if i > 0 {
			continue
		}
		switch word {
		case "":
			v.AddError("mcp.command[0]", "an empty string", "a program")
		case "npx", "npm", "bunx", "pnpm", "yarn", "node", "deno":
			v.AddError("mcp.command[0]", strconv.Quote(word), `"package": "npm:@scope/server@1.2.3" in place of "command"`)
		case "uvx", "pipx", "uv":
			v.AddError("mcp.command[0]", strconv.Quote(word), `"package": "pypi:NAME@VERSION" in place of "command"`)
		case "docker", "podman":
			v.AddError("mcp.command[0]", strconv.Quote(word)+", which downloads what it starts",
				"an installed program: one in SANDBOX_PROGRAMS, or python3")
		}
	}
}

// given are the variables that CodeForge sets for every server.
var given = []string{
	"HOME", "TMPDIR", "DENO_DIR", "DENO_CERT", "DENO_NO_UPDATE_CHECK", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE",
	"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	"AWS_CA_BUNDLE",
}

func (v *configValidator) serverEnv(a *API, env map[string]string) {
	if len(env) > maxServerList {
		v.AddError("mcp.env", fmt.Sprintf("%d variables", len(env)), fmt.Sprintf("at most %d", maxServerList))
	}
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	for _, key := range slices.Sorted(maps.Keys(env)) {
		field := strictjson.FieldLabel("mcp.env.", key, isPlainKey(key))
		switch {
		case !name.MatchString(key) || len(key) > maxField:
			v.AddError(field, "not the name of a variable", "letters, digits and _, e.g. API_TOKEN")
		case slices.Contains(given, key):
			v.AddError(field, "a variable that CodeForge sets", "it left out")
		default:
			v.checkConstant(a, field, key, env[key])
		}
	}
}

func (v *configValidator) serverHeaders(a *API, headers map[string]string) {
	if len(headers) > maxServerList {
		v.AddError("mcp.headers", fmt.Sprintf("%d headers", len(headers)), fmt.Sprintf("at most %d", maxServerList))
	}
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		field := strictjson.FieldLabel("mcp.headers.", key, isPlainKey(key))
		folded := FoldHeader(key)
		switch {
		case !isToken(key) || len(key) > maxField || !httpguts.ValidHeaderFieldValue(headers[key]):
			v.AddError(field, "not a header", `a header, e.g. "Authorization": "Bearer EXAMPLE_TOKEN"`)
		case strings.HasPrefix(folded, "mcp-"), strings.HasPrefix(folded, "content-"),
			slices.Contains([]string{"host", "connection", "transfer-encoding", "accept", "upgrade", "last-event-id"}, folded):
			v.AddError(field, "a header that the protocol sets", "it left out")
		case IsSinkHeader(key) && hasTokenName(a, headers[key]):
			v.AddError(field, "a token name in a header that servers log, store or pass on; CodeForge does not swap there",
				"the header that the server wants, e.g. Authorization")
		default:
			v.checkConstant(a, field, key, headers[key])
		}
	}
}

// checkConstant checks a value for the server: a constant, or one with token names of the API. key is the name of the
// variable, header or parameter, or "". No message quotes the value.
func (v *configValidator) checkConstant(a *API, field, key, value string) {
	const want = `the credential in "credentials", and its token name here`
	switch {
	case len(value) > maxServerText:
		v.AddError(field, fmt.Sprintf("a value of %d bytes", len(value)), fmt.Sprintf("at most %d", maxServerText))
	case strings.ContainsFunc(value, unicode.IsControl):
		v.AddError(field, "a control character", "text without control characters")
	case hasLikelySecret(removeNames(a, value)):
		v.AddError(field, "a value that looks like a credential", want)
	case isSecretName(key) && !hasTokenName(a, value) && !isHarmless(value):
		v.AddError(field, "a value that is not a token name of this API, under a name that suggests a credential", want)
	}
}

// findForeignName returns a token name of another API in the values for an API's server, or "".
func findForeignName(own *API, owner map[string]*API) string {
	s := own.Server
	values := slices.Concat([]string{s.URL}, s.Command, s.Args,
		slices.Sorted(maps.Values(s.Env)), slices.Sorted(maps.Values(s.Headers)))
	separator := func(r rune) bool { return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') }
	for _, text := range values {
		for _, w := range strings.FieldsFunc(text, separator) {
			if a := owner[w]; a != nil && a != own {
				return w
			}
		}
	}
	return ""
}

// checkWord checks a setting with a list of allowed words.
func (v *configValidator) checkWord(field, s string, known []string) {
	if slices.Contains(known, s) {
		return
	}
	want := "one of " + strings.Join(known, ", ")
	if near := strictjson.NearestName(s, known); near != "" {
		want = fmt.Sprintf("did you mean %q?", near)
	}
	v.AddError(field, strconv.Quote(strictjson.CutQuote(s)), want)
}

// checkGlobs checks patterns over names of tools.
func (v *configValidator) checkGlobs(field string, list []string) {
	for i, g := range v.AtMost(field, list, maxServerList) {
		if g == "" || len(g) > maxField || strings.ContainsAny(g, `[]{}\`) || strings.ContainsFunc(g, unicode.IsControl) {
			v.AddError(fmt.Sprintf("%s[%d]", field, i), "not a pattern for names of tools",
				`a name, in which * and ? stand for other characters, e.g. "get_*"`)
		}
	}
}
