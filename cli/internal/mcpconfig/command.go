package mcpconfig

import (
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// startCommand describes how to start a server. Exactly one of pkg, url, program and refused is set.
type startCommand struct {
	pkg     string // NAME, without a version
	version string // as written in the file; empty: no version
	bin     string // program of the package, if it has several
	// pypi means that pkg is a package of PyPI, and may have extras. constraints limit the versions of its dependencies.
	pypi        bool
	constraints []string
	url         string
	program     string
	// path is the program's path, if it was named by a path.
	path    string
	args    []string
	headers map[string]string
	env     map[string]string
	sse     bool
	login   bool // the user logs in if the server asks for it
	refused string
}

// baseName returns a program's name without folders and Windows suffixes.
func baseName(word string) string {
	name := path.Base(strings.ReplaceAll(word, `\`, "/"))
	for _, ending := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		if len(name) > len(ending) && strings.EqualFold(name[len(name)-len(ending):], ending) {
			name = name[:len(name)-len(ending)]
		}
	}
	return name
}

// unwrapCommand removes wrappers around a command: cmd /c, env A=B, and a shell with one simple command.
func unwrapCommand(words []string) (rest []string, env map[string]string, ok bool) {
	env = map[string]string{}
	for len(words) > 0 {
		switch name := baseName(words[0]); {
		case strings.EqualFold(name, "cmd") && len(words) > 1 && strings.EqualFold(words[1], "/c"):
			words = words[2:]
		case name == "env":
			words = words[1:]
			for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "-S") {
				if key, value, is := strings.Cut(words[0], "="); is {
					env[key] = value
				}
				words = words[1:]
			}
		case slices.Contains([]string{"sh", "bash", "zsh"}, name) && len(words) >= 3 && strings.Trim(words[1], "-lic") == "":
			// Without a shell, a line with such characters would mean something else.
			if strings.ContainsAny(words[2], "|&;<>()`$\"'\\\n*?") {
				return nil, nil, false
			}
			words = strings.Fields(strings.TrimPrefix(strings.TrimSpace(words[2]), "exec "))
		default:
			return words, env, true
		}
	}
	return nil, env, true
}

// startOf parses a command line.
func startOf(command []string) startCommand {
	words, env, ok := unwrapCommand(command)
	switch {
	case !ok:
		return startCommand{refused: "it is started by a line of shell: name the program and its arguments instead"}
	case len(words) == 0:
		return startCommand{refused: "it has neither a command nor a URL"}
	}
	s := startIn(words)
	s.env = env
	return s
}

func startIn(words []string) startCommand {
	name, rest := baseName(words[0]), words[1:]
	verb := func(verbs ...string) bool { return len(rest) > 0 && slices.Contains(verbs, rest[0]) }
	switch {
	case name == "npx", name == "bunx", name == "pnpx":
		return parsePackage(rest)
	case name == "npm" && verb("exec", "x"), name == "pnpm" && verb("dlx", "exec"), name == "yarn" && verb("dlx"),
		name == "bun" && verb("x"):
		return parsePackage(rest[1:])
	case name == "deno":
		for i, word := range rest {
			if spec, is := strings.CutPrefix(word, "npm:"); is {
				return parsePackage(append([]string{spec}, rest[i+1:]...))
			}
		}
		return startCommand{refused: "it is a script for Deno on this computer, not a package of npm"}
	case name == "node" || name == "bun":
		for i, word := range rest {
			if s, is := packageOfScript(word); is {
				s.args = rest[i+1:]
				return s
			}
		}
		return startCommand{refused: "it is a script for Node on this computer: publish it as a package of npm, or build a " +
			"program of it for the folder SANDBOX_PROGRAMS"}
	case name == "docker", name == "podman", name == "nerdctl":
		return startCommand{refused: "it is started in a container, which a sandbox cannot do"}
	case name == "uvx":
		return parsePyPI(rest, false)
	case name == "uv" && verb("tool") && len(rest) > 1 && rest[1] == "run":
		return parsePyPI(rest[2:], false)
	case name == "uv" && verb("run"):
		return parsePyPI(rest[1:], true)
	case name == "pipx" && verb("run"):
		return parsePyPI(rest[1:], false)
	case name == "uv", name == "pipx", isPython.MatchString(name) && verb("-m"):
		return startCommand{refused: "it starts a module or a project of this computer: name the package of PyPI that " +
			"has it, as in uvx NAME"}
	case isPython.MatchString(name): // also that of a virtual environment
		return startCommand{refused: "it is a script for Python on this computer: make it a package of PyPI, or build a " +
			"program of it for the folder SANDBOX_PROGRAMS"}
	}
	s := startCommand{program: name, args: rest}
	if strings.ContainsAny(words[0], `/\`) {
		s.path = words[0]
	}
	return s
}

// packageOfScript returns the package of a script below node_modules.
func packageOfScript(script string) (startCommand, bool) {
	_, inside, ok := strings.Cut(strings.ReplaceAll(script, `\`, "/"), "node_modules/")
	if !ok {
		return startCommand{}, false
	}
	parts := strings.Split(inside, "/")
	name := parts[0]
	if strings.HasPrefix(name, "@") && len(parts) > 1 {
		name += "/" + parts[1]
	}
	return startCommand{pkg: name}, true
}

// isPython matches the names of Python's interpreters, and not those of programs such as python-docs-mcp.
var isPython = regexp.MustCompile(`^pythonw?[0-9.]*$`)

// indexVariable matches variables that name a package index or a registry.
var indexVariable = regexp.MustCompile(`(?i)^(UV|PIP)_.*(INDEX|FIND_LINKS)|^NPM_CONFIG_.*REGISTRY$`)

// findIndexVariable returns the first variable that names a package index or a registry, or "".
func findIndexVariable(environs ...map[string]string) string {
	for _, env := range environs {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if indexVariable.MatchString(name) {
				return name
			}
		}
	}
	return ""
}

// refuseOtherIndex is the refusal of a server whose option or variable can name a package index or a registry. In the
// user's own index, any person may have registered another package under the same name.
func refuseOtherIndex(what, setting string) string {
	return what + " can name another source of packages: leave it out, and set " + setting +
		" to the one that has the package"
}

// parsePackage parses the words after npx.
func parsePackage(words []string) startCommand {
	spec := ""
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		flag, value, joined := strings.Cut(words[0], "=")
		words = words[1:]
		if strings.HasSuffix(flag, "registry") || flag == "--userconfig" {
			return startCommand{refused: refuseOtherIndex("its option "+flag, "PACKAGE_REGISTRY")}
		}
		if flag == "-c" || flag == "--call" {
			return startCommand{refused: "its option " + flag + " starts a shell: name the package and its program instead"}
		}
		if flag == "-p" || flag == "--package" {
			if !joined && len(words) > 0 {
				value, words = words[0], words[1:]
			}
			spec = value
		}
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	bin := ""
	switch {
	// npm exec: after --package, the first word is the program and not the package.
	case spec != "" && len(words) > 0:
		bin, words = words[0], words[1:]
	case len(words) > 0:
		spec, words = words[0], words[1:]
	}
	if spec == "" {
		return startCommand{refused: "it names no package"}
	}
	name, version := cutVersion(spec)
	// npm reads owner/name as a repository on GitHub.
	if strings.ContainsAny(name, ":\\") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") ||
		strings.Contains(name, "/") && !strings.HasPrefix(name, "@") || strings.Contains(version, ":") {
		return startCommand{refused: "it is not a package of the registry, but one from a folder or a repository"}
	}
	if name == "mcp-remote" || name == "supergateway" {
		s := parseRemote(words)
		s.login = name == "mcp-remote" && len(s.headers) == 0
		return s
	}
	return startCommand{pkg: name, version: version, bin: bin, args: words}
}

// cutVersion splits NAME@VERSION.
func cutVersion(spec string) (name, version string) {
	i := strings.LastIndex(spec, "@")
	if i <= 0 {
		return spec, ""
	}
	return spec[:i], spec[i+1:]
}

// parseRemote parses the arguments of mcp-remote: the address and headers of a remote server.
func parseRemote(args []string) startCommand {
	s := startCommand{headers: map[string]string{}}
	for i := 0; i < len(args); i++ {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch word := args[i]; {
		case word == "--header" || word == "-H":
			if key, value, ok := strings.Cut(next, ":"); ok {
				s.headers[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
			i++
		// supergateway has a flag for each transport, with the address as its value.
		case word == "--sse", word == "--streamableHttp":
			s.url, s.sse = next, word == "--sse"
			i++
		case word == "--transport":
			// mcp-remote has the strategies sse-only and sse-first.
			s.sse = strings.HasPrefix(next, "sse")
			i++
		case s.url == "" && isURL(word):
			s.url = word
		}
	}
	if s.url == "" {
		return startCommand{refused: "it names no address"}
	}
	return s
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// IsCodeForge reports whether a server is CodeForge itself, at one of its addresses or as a program.
func (s Server) IsCodeForge(endpoints []string) bool {
	where := s.URL
	if where == "" {
		words, _, _ := unwrapCommand(s.Command)
		if len(words) == 0 {
			return false
		}
		at := slices.IndexFunc(words, func(w string) bool { return baseName(w) == "codeforge" })
		inContainer := baseName(words[0]) == "docker" && slices.Contains(words, "exec")
		if at == 0 || inContainer && at > 0 && slices.Contains(words[at:], "stdio") {
			return true
		}
		where = startIn(words).url
	}
	u, err := url.Parse(where)
	if err != nil || where == "" {
		return false
	}
	return slices.ContainsFunc(endpoints, func(endpoint string) bool {
		own, err := url.Parse(endpoint)
		return err == nil && isLoopback(u.Hostname()) && isLoopback(own.Hostname()) && u.Port() == own.Port() &&
			strings.TrimRight(u.Path, "/") == strings.TrimRight(own.Path, "/")
	})
}

func isLoopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1", "host.docker.internal"}, host)
}
