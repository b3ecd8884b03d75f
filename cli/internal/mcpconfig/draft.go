package mcpconfig

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/internal/pypiname"
)

// Draft is a server as an API.
type Draft struct {
	// From is the server's name in the original file.
	From  string
	Entry apidir.Entry
	// Where maps each token name to the variable, header or argument that held its credential.
	Where map[string]string
	// Known is the example for this server, or nil.
	Known *ServerExample
	// Notes are for the user. Refused is the reason why the server cannot run here, or empty.
	Notes   []string
	Refused string
}

// Drafter makes drafts.
type Drafter struct {
	Examples []ServerExample
	// Lookup returns a variable of the user's environment.
	Lookup func(name string) (string, bool)
	// Version returns the exact version for a tag or range of a package.
	Version func(ctx context.Context, pkg, wanted string) (string, error)
	// Registry returns the package registry for config.json, or "" if it is unknown. Nil: PACKAGE_REGISTRY is set.
	Registry func() Registry
	// Index returns the package index for packages of PyPI. Its URL is empty if the index is unknown.
	Index func() Index
	// TakenAPI and TakenToken report whether a name is already in use. Earlier drafts count too.
	TakenAPI, TakenToken func(name string) bool

	apis, tokens map[string]bool
	noRegistry   bool // the missing registry has been reported
}

// isPinned reports whether a version is the example's.
func (d *Draft) isPinned(version string) bool {
	_, known := d.Known.packageAndVersion()
	return version == known
}

// DraftServer makes a draft of a server.
func (d *Drafter) DraftServer(ctx context.Context, s Server) Draft {
	if d.apis == nil {
		d.apis, d.tokens = map[string]bool{}, map[string]bool{}
	}
	name := d.freeName(catalog.FolderName(s.Name))
	d.apis[name] = true
	out := Draft{From: s.Name, Notes: s.Notes}
	out.Entry = apidir.Entry{Name: name, Description: "MCP server " + name, Inactive: true}
	how := startCommand{url: s.URL, sse: s.Transport == "sse"}
	if s.URL == "" {
		how = startOf(s.Command)
	}
	if how.refused != "" {
		out.Refused = how.refused
		if k := findImageExample(d.Examples, s.Command); k != nil {
			out.Notes = append(out.Notes, "put the program "+k.Server.Command[0]+" into the folder SANDBOX_PROGRAMS and use "+
				"the example: codeforge api add "+k.Name)
		}
		return out
	}
	keys := &keyExtractor{
		api: name, lookup: d.Lookup, inputs: s.Inputs, where: map[string]string{}, own: map[string]bool{},
		taken: func(token string) bool { return d.tokens[token] || d.TakenToken(token) },
	}
	if keys.lookup == nil {
		keys.lookup = func(string) (string, bool) { return "", false }
	}
	out.Known = findExample(d.Examples, how)
	out.Entry.Server = &apidir.Server{}
	out.fillValues(how, s, keys)
	switch foreign := findIndexVariable(s.Env, how.env); {
	case how.pypi && foreign != "":
		out.Refused = refuseOtherIndex("its variable "+foreign, "PIP_INDEX_URL")
	case how.pkg != "" && foreign != "":
		out.Refused = refuseOtherIndex("its variable "+foreign, "PACKAGE_REGISTRY")
	case how.pypi:
		d.pinPyPI(ctx, &out, how)
	case how.pkg != "":
		d.pinVersion(ctx, &out, how)
	}
	out.applyExample(keys)
	out.Entry.Credentials, out.Where = keys.list, keys.where
	for _, c := range keys.list {
		d.tokens[c.Name] = true
	}
	out.Notes = append(out.Notes, keys.notes...)
	return out
}

// freeName returns a name that no API has.
func (d *Drafter) freeName(name string) string {
	name = cmp.Or(name, "server")
	for _, more := range []string{"", "-mcp", "-mcp-2", "-mcp-3", "-mcp-4", "-mcp-5"} {
		if !d.apis[name+more] && !d.TakenAPI(name+more) && name+more != "example" {
			return name + more
		}
	}
	return name + "-mcp-6" // writing the API then reports that the name is taken
}

// pinVersion sets the exact version of a package.
func (d *Drafter) pinVersion(ctx context.Context, out *Draft, how startCommand) {
	version := strings.TrimPrefix(how.version, "v")
	if out.Known != nil && !exact.MatchString(version) {
		_, version = out.Known.packageAndVersion()
		out.addNote("npm:" + how.pkg + " is pinned to " + version + ", the version that the example was tried with")
	}
	switch {
	case out.Known != nil && exact.MatchString(version) && out.isPinned(version):
	case exact.MatchString(version): // check that it exists
		_, err := d.Version(ctx, how.pkg, version)
		if errors.Is(err, ErrNoRegistry) && d.noRegistry {
			break // it was said
		} // already reported
		if d.noRegistry = d.noRegistry || errors.Is(err, ErrNoRegistry); err != nil {
			out.addNote("npm:" + how.pkg + "@" + version + " cannot be installed now: " + err.Error())
		}
	default:
		found, err := d.Version(ctx, how.pkg, version)
		if err != nil {
			out.Refused = "the version of npm:" + how.pkg + " is not exact, and " + err.Error() +
				": name one, as in " + how.pkg + "@1.2.3"
			return
		}
		version = found
		out.addNote("npm:" + how.pkg + " is pinned to " + version + ", today's version")
	}
	out.Entry.Server.Package = "npm:" + how.pkg + "@" + version
	if how.bin != "" && how.bin != path.Base(how.pkg) {
		out.Entry.Server.Package += "/" + how.bin
	}
	if d.Registry == nil {
		return
	}
	// A running CodeForge may have started without packages, and then it has not asked npm for the registry.
	out.Entry.Server.Registry = string(d.Registry())
	if out.Entry.Server.Registry == "" && !d.noRegistry {
		d.noRegistry = true
		out.addNote("npm:" + how.pkg + "@" + version + " cannot be installed now: " + ErrNoRegistry.Error())
	}
}

// pinPyPI sets the exact version of a package of PyPI, its constraints, and the index that has it.
func (d *Drafter) pinPyPI(ctx context.Context, out *Draft, how startCommand) {
	index := d.Index()
	hosts, newest, err := index.ListPackage(ctx, how.pkg)
	version := how.version
	switch {
	case index.URL == "":
		out.Refused = err.Error()
		return
	case exactPyPI.MatchString(version) && err != nil:
		out.addNote("pypi:" + how.pkg + "@" + version + " cannot be installed now: " + err.Error())
	case exactPyPI.MatchString(version):
	case err != nil || version != "" || newest == "":
		why := "no exact version can be chosen"
		if err != nil {
			why = err.Error()
		}
		out.Refused = "the version of pypi:" + how.pkg + " is not exact, and " + why + ": name one, as in " +
			how.pkg + "==1.2.3"
		return
	default:
		version = newest
		out.addNote("pypi:" + how.pkg + " is pinned to " + version + ", today's version")
	}
	s, name := out.Entry.Server, pypiname.FoldName(how.pkg)
	s.Package, s.Constraints = "pypi:"+how.pkg+"@"+version, how.constraints
	if how.bin != "" && pypiname.FoldName(how.bin) != name {
		s.Package += "/" + how.bin
	}
	if known, ok := knownConstraints[name]; ok && len(s.Constraints) == 0 &&
		(known.fixed == "" || compareVersions(version, known.fixed) < 0) {
		s.Constraints = []string{known.constraint}
		out.addNote("it starts only with " + known.constraint + ": newer versions of this dependency break it")
	}
	s.Registry, s.RegistryHosts = index.URL, hosts
}

func (d *Draft) addNote(text string) { d.Notes = append(d.Notes, text) }

// dropped are variables that have no meaning in a sandbox or that CodeForge sets.
var dropped = []string{
	"PATH", "HOME", "USER", "SHELL", "TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "PROGRAMFILES", "SYSTEMROOT",
	"NODE_OPTIONS", "NODE_PATH", "NVM_DIR", "NODE_TLS_REJECT_UNAUTHORIZED", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE",
	"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	"AWS_CA_BUNDLE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX",
	"DENO_DIR", "DENO_CERT", "DENO_NO_UPDATE_CHECK",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
}

// fillValues takes over the values of the file.
func (d *Draft) fillValues(how startCommand, s Server, keys *keyExtractor) {
	server := d.Entry.Server
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, how.env)
	switch {
	case how.url != "":
		expanded, missing := keys.expandReferences("its address", how.url)
		if missing != "" {
			d.Refused = "its address has " + missing + " in it, which is not set here"
			return
		}
		headers := maps.Clone(s.Headers)
		if headers == nil {
			headers = map[string]string{}
		}
		for key, value := range how.headers { // mcp-remote's headers, which may reference its environment
			headers[key] = reference.ReplaceAllStringFunc(value, func(found string) string {
				m := reference.FindStringSubmatch(found)
				if v, ok := env[m[2]]; ok {
					return v
				}
				return found
			})
		}
		server.Headers = cleanValues(keys, headers)
		if server.URL = keys.cleanURL(expanded); keys.mayLeak(expanded, server.URL) {
			d.Refused = "a key of your variables is in its address, which cannot contain a token name"
			return
		}
		if u, err := url.Parse(server.URL); err == nil && u.Scheme == "http" {
			d.Entry.AllowHTTP = true
			if isLoopback(u.Hostname()) {
				d.addNote("it listens on this computer: allow_private opens its address, see docs/reference/config-json.md")
			}
		}
		asks := d.Known != nil && d.Known.Server.Headers["Authorization"] != ""
		if s.Login || how.login && asks && len(keys.list) == 0 {
			server.Headers["Authorization"] = "Bearer " + keys.addLogin(server.URL)
			if !s.Login {
				d.addNote("mcp-remote logs in at it, and so does codeforge mcp login " + d.Entry.Name)
			}
		}
		if how.sse {
			server.Transport = "sse"
		}
	default:
		for _, key := range slices.Sorted(maps.Keys(env)) {
			if slices.Contains(dropped, strings.ToUpper(key)) {
				delete(env, key)
				d.addNote(key + " is left out: the sandbox sets what a server needs of its kind")
			}
		}
		server.Env = cleanValues(keys, env)
		for _, key := range slices.Sorted(maps.Keys(server.Env)) {
			if isLocalPath(server.Env[key]) {
				d.addNote(key + " names a path of this computer, which the server does not see: it has a private home")
			}
		}
		args := d.cleanArguments(how.args, keys)
		if how.pkg != "" {
			server.Args = args
		} else {
			server.Command = append([]string{how.program}, args...)
			if how.path != "" {
				d.addNote("copy " + how.path + " into the folder that SANDBOX_PROGRAMS names: a server starts from there")
			}
		}
	}
	if len(s.Allow)+len(s.Deny) > 0 {
		server.Tools = &apidir.Tools{Allow: s.Allow, Deny: s.Deny}
	}
	server.Timeout, server.Connect = s.Timeout, s.Connect
	for _, name := range s.ExclusiveWith {
		server.ExclusiveWith = append(server.ExclusiveWith, catalog.FolderName(name))
	}
	if s.Off {
		d.addNote("it is switched off in the file")
	}
}

// cleanValues returns variables or headers without their keys.
func cleanValues(keys *keyExtractor, values map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if text, ok := keys.cleanValue(key, values[key]); ok {
			out[key] = text
		}
	}
	return out
}

// cleanArguments returns a program's arguments without their keys: --token KEY, --token=KEY and bare keys.
func (d *Draft) cleanArguments(args []string, keys *keyExtractor) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		word := args[i]
		flag, value, joined := strings.Cut(word, "=")
		name := strings.TrimLeft(flag, "-")
		switch {
		case strings.HasPrefix(word, "-") && joined:
			if text, ok := keys.cleanValue(name, value); ok {
				out = append(out, flag+"="+text)
			}
		case strings.HasPrefix(word, "-") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			i++
			if text, ok := keys.cleanValue(name, args[i]); ok {
				out = append(out, word, text)
			}
		default:
			if text, ok := keys.cleanValue("", word); ok {
				out = append(out, text)
			}
		}
	}
	if slices.ContainsFunc(out, isLocalPath) {
		d.addNote("an argument names a folder of this computer, which the server does not see: it has a private home")
	}
	return out
}

// isLocalPath reports whether an argument is a path on the user's computer.
func isLocalPath(arg string) bool {
	if _, value, joined := strings.Cut(arg, "="); joined && strings.HasPrefix(arg, "-") {
		arg = value
	}
	return strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "~") || strings.Contains(arg, "${workspaceFolder") ||
		strings.Contains(arg, "${userHome") || len(arg) > 2 && arg[1] == ':' && (arg[2] == '\\' || arg[2] == '/')
}

// applyExample adds the example's values: hosts, constants, the form of the key, and the keys that the user must type.
func (d *Draft) applyExample(keys *keyExtractor) {
	k, server := d.Known, d.Entry.Server
	if k == nil {
		if server.URL == "" {
			d.addNote("its hosts are not known: codeforge mcp test " + d.Entry.Name + " finds what it wants to reach")
		}
		return
	}
	d.Entry.Description, d.Entry.Domains, d.Entry.Reference = k.Description, k.Domains, k.Reference
	d.Entry.Restricted = k.Restricted
	for _, host := range k.Domains {
		if strings.HasSuffix(host, ".example.com") {
			d.addNote(host + " stands for a host of yours: codeforge api edit " + d.Entry.Name)
		}
	}
	server.Permissions, server.State = k.Server.Permissions, k.Server.State
	if len(server.Args) == 0 || slices.ContainsFunc(server.Args, isLocalPath) {
		server.Args = k.Server.Args
	}
	for _, pair := range []struct{ own, theirs map[string]string }{
		{server.Env, k.Server.Env}, {server.Headers, k.Server.Headers},
	} {
		for _, key := range slices.Sorted(maps.Keys(pair.theirs)) {
			d.knowValue(keys, pair.own, key, pair.theirs[key])
		}
	}
	d.applyPlaceholder(keys)
}

// applyPlaceholder applies the placeholder of the example's only key to the draft's only key, if that key is an
// argument.
func (d *Draft) applyPlaceholder(keys *keyExtractor) {
	if len(keys.list) != 1 || len(d.Known.Credentials) != 1 || keys.list[0].Placeholder != "" {
		return
	}
	for token, about := range d.Known.Credentials {
		c := &keys.list[0]
		if about.Placeholder == "" {
			continue
		}
		c.Placeholder = strings.Replace(about.Placeholder, token, c.Name, 1)
		for i, arg := range d.Entry.Server.Args {
			d.Entry.Server.Args[i] = strings.Replace(arg, c.Name, c.Placeholder, 1)
		}
	}
}

// knowValue takes over a variable or header of the example. A key in it becomes a credential of this draft.
func (d *Draft) knowValue(keys *keyExtractor, own map[string]string, key, theirs string) {
	token := ""
	for name := range d.Known.Credentials {
		// One token name may be a part of another, so the longest counts.
		if strings.Contains(theirs, name) && len(name) > len(token) {
			token = name
		}
	}
	have, there := own[key]
	if token == "" {
		if !there || isLocalPath(have) {
			own[key] = theirs
		}
		return
	}
	about := d.Known.Credentials[token]
	if there && !slices.ContainsFunc(keys.list, func(c apidir.EntryCredential) bool {
		return strings.Contains(have,
			c.Name)
	}) {
		have, there = keys.addCredential(key, have), true // it does not look like a key, but the example shows that it is one
		own[key] = have
	}
	if !there {
		if len(keys.list) > 0 && len(d.Known.Credentials) == 1 {
			return // the key is an argument or in another variable
		}
		have = keys.addCredential(key, Typed)
		own[key] = strings.Replace(theirs, token, have, 1)
		if about.Placeholder != "" {
			own[key] = strings.Replace(theirs, about.Placeholder, have, 1)
		}
	}
	for i, c := range keys.list {
		if !strings.Contains(have, c.Name) {
			continue
		}
		keys.list[i].Surfaces = about.In
		if about.Placeholder != "" {
			shape := strings.Replace(about.Placeholder, token, c.Name, 1)
			keys.list[i].Placeholder = shape
			own[key] = strings.Replace(own[key], c.Name, shape, 1)
		}
	}
}

// NeedsTyping reports whether the user must still type a credential.
func NeedsTyping(c apidir.EntryCredential) bool { return c.Login == "" && c.Value.Reveal() == Typed }
