package tools

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/hostname"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// listHints returns sentences about what to change, each once, at most maxHints. The proxy's hints come first, then
// hints for refusals by Deno. Text that the code printed itself is not repeated: the body of a refusal has the same
// hint.
func (r runRendering) listHints() []readertext.Text {
	stdout, _ := r.stdout.Text(r.limit)
	stderr, _ := r.stderr.Text(r.limit)
	printed := stderr + "\n" + stdout
	said := func(s string) bool {
		// Code often prints a body as JSON, in which the hint is escaped.
		inJSON := strings.Trim(jsonText(s), `"`)
		return s == "" || strings.Contains(printed, s) || strings.Contains(printed, inJSON)
	}
	var out []readertext.Text
	seen := map[string]bool{}
	add := func(key, person string, t readertext.Text) {
		if seen[key] {
			return
		}
		seen[key] = true
		if said(key) {
			t.Model = ""
		}
		if said(person) {
			t.Person = ""
		}
		if t != (readertext.Text{}) {
			out = append(out, t)
		}
	}
	for _, h := range r.outcome.Receipt.Hints {
		if h.Code == proxyapi.HintETag && !usesETag.MatchString(r.code) {
			continue // most responses have an ETag, and most code reads none
		}
		t := h.VoiceText()
		add(h.Text, strings.TrimPrefix(t.Person, h.RequestPrefix()), t)
	}
	for _, t := range slices.Concat(
		r.hintFailedResponses(), r.hintBrokenResponses(printed), r.hintFailedCalls(), r.hintNotJSON(printed),
		r.hintSlips(stderr), hintRefusals(printed, r), r.hintLanguage(printed),
	) {
		add(t.Model, t.Person, t)
	}
	if !r.language.IsPython() && shortened.MatchString(stdout) {
		t := readertext.NewText("console.log shortens long lists and deep objects: print JSON.stringify(x) to see all.")
		add(t.Model, t.Person, t)
	}
	if n := len(out) - maxHints; n > 0 {
		out = append(out[:maxHints], readertext.NewText("%N more hints are left out.", "%N", strconv.Itoa(n)))
	}
	return out
}

// usesETag matches code that may read an ETag. It also matches imports of skills, which may read one.
var usesETag = regexp.MustCompile(`(?i)etag|if[-_]?(?:none[-_]?)?match|headobject|head_object|/skills/`)

// Output of code that read another format as JSON.
var (
	notJSON = mustCompile(`SyntaxError: [^\n]*(?:is not valid JSON|Unexpected end of JSON input|after JSON)|` +
		`JSONDecodeError: `)
	plainPath = regexp.MustCompile(`^/[A-Za-z0-9/_.~-]{0,80}$`)
)

// maxNotJSON is the largest number of answers that the hint names.
const maxNotJSON = 2

// hintNotJSON names the last answers that were not JSON, if the code failed to read one as JSON.
func (r runRendering) hintNotJSON(printed string) []readertext.Text {
	if !notJSON.MatchString(printed) {
		return nil
	}
	var out []readertext.Text
	// The last requests are the most likely cause of the error.
	for _, x := range slices.Backward(r.outcome.Receipt.Exchanges) {
		what := ""
		switch {
		case x.Outcome != proxyapi.OutcomeServed || x.CalledTool() != "":
		case x.BytesDown == 0:
			what = "an empty body"
		case x.Type != "" && x.Type != "application/json":
			what = x.Type
		}
		// The host may come from code, so only a valid one is repeated.
		host, err := hostname.ParsePattern(x.Host)
		if what == "" || err != nil {
			continue
		}
		path := ""
		if _, rest, ok := strings.Cut(x.URL, "://"+x.Host); ok {
			rest, _, _ = strings.Cut(rest, "?")
			// Only harmless characters are repeated: the path may hold text from code or a server.
			if plainPath.MatchString(rest) {
				path = rest
			}
		}
		t := readertext.NewText("%METHOD %HOST answered %STATUS with %WHAT, not JSON. Check "+
			r.languageWord("answer.ok and the path, and print (await answer.text()).slice(0, 300).",
				"the status and the path, and print the first 300 characters of the answer."),
			"%METHOD", describeMethod(x.Method), "%HOST", host.String()+path, "%STATUS", strconv.Itoa(x.Status), "%WHAT", what)
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
		if len(out) == maxNotJSON {
			break
		}
	}
	return out
}

// describeMethod returns a standard method, or a phrase: code may invent a method's name.
func describeMethod(m string) string {
	if slices.Contains([]string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}, m) {
		return m
	}
	return "a request to"
}

// Output of Deno and Python if they refuse something themselves, or cannot do it in the sandbox.
var (
	netRefusal = mustCompile(`Requires net access to "([^"\s]{1,300})"`)
	// closedPort matches a refused connection. Deno allows every port of a host that domains lists without a port, but the
	// proxy listens only at the ports in domains.
	closedPort = mustCompile(`url \(https?://([^/\s()]{1,300}:\d+)/[^\s()]*\): client error \(Connect\): ` +
		`tcp connect error: Connection refused`)
	fileRefusal   = mustCompile(`Requires (?:read|write) access to |\[Errno 30\] Read-only file system`)
	otherRefusal  = mustCompile(`Requires (?:run|ffi|sys|import) access|NotFound: Failed to spawn '`)
	unsetVariable = mustCompile(
		`File "(?:<frozen os>|[^"\n]*/os\.py)", line \d+, in __getitem__\n(?:[ ~^][^\n]*\n)*KeyError: `)
	mcpRefusal = mustCompile(`ReferenceError: (?:mcp|McpError) is not defined|` +
		`Relative import path "mcp" not prefixed|Import "mcp" not a dependency`)
	importRefusal = mustCompile(`[Aa] remote specifier was requested|npm package not found in cache|` +
		`Could not find npm package |The lockfile is out of date|` +
		`(?:[Nn]pm|[Jj]sr) specifiers? (?:was|were) requested|` +
		`(?:npm|jsr): specifier was requested|--no-remote|--no-npm|import access to "|Import "[^"\n]+" not a dependency|` +
		`Relative import path "[^"\n]+" not prefixed`)
	// folderImport matches the error for an import from /apis or /skills without the first slash.
	folderImport   = mustCompile(`Import "((?:apis|skills)/[\w-]{1,64})(?:\.ts)?" not a dependency`)
	requireRefusal = mustCompile(`ReferenceError: (?:require|module|exports|__dirname|__filename) is not defined`)
	moduleRefusal  = mustCompile(`Module not found "file://(/[^"\n]{1,200})"`)
	brokenSkill    = mustCompile(`SyntaxError: [^\n]*\n(?:[^\n]*\n){0,8}? +at ` +
		`file://[/\w-]*?/skills/([\w-]{1,64})\.ts:`)
	sizeRefusal = mustCompile(`File too large \(os error 27\)|\[Errno 27\] File too large`)
	// spaceRefusal captures the folder if the interpreter names the file.
	spaceRefusal = mustCompile(`(?:No space left on device \(os error 28\)|\[Errno 28\] No space left on device)` +
		`(?:[^\n]*'(/tmp|/skills)\b)?`)
	shortened = mustCompile(`(?m)^\s*\.\.\. \d+ more items?$|[:,\[{] \[(?:Object|Array)\]`)
)

// hintRefusals returns hints for requests that Deno refused before they reached the proxy, and for omitted output. Code
// can print any text, so a host or a skill counts only if its name is valid.
func hintRefusals(printed string, r runRendering) []readertext.Text {
	printed, out := hintServerErrors(printed, r.catalog)
	out = append(out, r.hintHosts(printed)...)
	add := func(is bool, template string, values ...string) {
		if is {
			out = append(out, readertext.NewText(template, values...))
		}
	}
	wantsMCP := mcpRefusal.MatchString(printed)
	if wantsMCP {
		out = append(out, explainNoServers(r.catalog))
	}
	folder := folderImport.FindStringSubmatch(printed)
	if folder != nil {
		add(true, "Import it by its whole path: \"%PATH.ts\".", "%PATH", "/"+folder[1])
	}
	// One wrong import can match several patterns; only the most precise hint is shown.
	isPackage := !wantsMCP && folder == nil && importRefusal.MatchString(printed)
	if isPackage {
		out = append(out, r.hintPackages())
	}
	add(requireRefusal.MatchString(printed), "There is no CommonJS: write import fs from \"node:fs\".")
	out = append(out, r.hintModules(printed)...)
	if m := brokenSkill.FindStringSubmatch(printed); m != nil && slices.Contains(r.skills, m[1]) {
		add(true, "The skill %NAME does not load: correct it {with update_skill|in a run, or remove it with codeforge "+
			"skills rm %NAME}.", "%NAME", m[1])
	}
	may := "Code may read /tmp, /skills and /runs, and write /tmp and /skills."
	if r.private {
		may = "Code may read and write only its working directory, by relative paths. update_skill makes and changes skills."
	}
	add(fileRefusal.MatchString(printed), may)
	add(unsetVariable.MatchString(printed), "The environment has variables only for the token names of this run's APIs.")
	add(otherRefusal.MatchString(printed), "Processes, native code and facts about the machine are not available to code.")
	add(sizeRefusal.MatchString(printed),
		fmt.Sprintf("A file may have at most %d MiB: write several.", sandboxapi.MaxFile>>20))
	if m := spaceRefusal.FindStringSubmatch(printed); m != nil {
		disk := cmp.Or(m[1], "/tmp or /skills")
		// Python names the file only if opening it fails.
		if inSkills := strings.Contains(r.code, "/skills"); m[1] == "" && inSkills != strings.Contains(r.code, "/tmp") {
			disk = "/tmp"
			if inSkills {
				disk = "/skills"
			}
		}
		add(true, "The disk of %DISK is full, and the file that was written last is incomplete: remove files that are no "+
			"longer needed.", "%DISK", disk)
	}
	return out
}

// hintPackages returns the hint for a package or URL that code cannot import.
func (r runRendering) hintPackages() readertext.Text {
	there := "no package"
	if pins, _ := sandboxapi.SplitPackages(r.catalog.Packages); len(pins) > 0 {
		there = "only these packages: " + strings.Join(pins, ", ")
	}
	return readertext.NewText("Code can import no URL, and %THERE. Use what Deno has built in (\"node:fs\" too), fetch, "+
		"and modules in /skills. {The user can add a package|A package is added} with: codeforge package add npm:NAME.",
		"%THERE", there)
}

// hintHosts returns hints for hosts that Deno did not let code reach.
func (r runRendering) hintHosts(printed string) []readertext.Text {
	cat := r.catalog
	var out []readertext.Text
	seen := map[string]bool{}
	refused := netRefusal.FindAllStringSubmatch(printed, 50)
	// The proxy listens at all ports in domains, so a refusal at such a port has another cause.
	for _, m := range closedPort.FindAllStringSubmatch(printed, 50) {
		if host, err := hostAt(m[1]); err == nil && !slices.Contains(strings.Split(listOtherPorts(host, cat), ", "), m[1]) {
			refused = append(refused, m)
		}
	}
	for _, m := range refused {
		name := m[1]
		// Bounded, because code can print any number of refused hosts.
		if seen[name] || len(out) > maxHints {
			continue
		}
		seen[name] = true
		host, err := hostAt(name)
		switch at := listOtherPorts(host, cat); {
		case err != nil:
			out = append(out, readertext.NewText("The sandbox reaches hosts by name only, and only those of configured APIs."))
		case at != "":
			t := readertext.NewText(
				"%HOST is not open at this port. The open hosts are: %AT. {The user can add|Add} the port to "+
					"\"domains\" in apis/<name>/config.json.", "%HOST", host.Name(), "%AT", at)
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		case r.mayHaveTriedHost(host):
			out = append(out, explainUnknownHost(host, cat))
		}
	}
	return out
}

// mayHaveTriedHost reports whether the run most likely tried to reach a host. A successful run may only have printed a
// server's text, which could recommend a host to the user in this way. Then the code must name the host.
func (r runRendering) mayHaveTriedHost(h hostname.Host) bool {
	exit := r.outcome.Exit
	return exit.Reason != sandboxapi.Exited || exit.Code != 0 || strings.Contains(strings.ToLower(r.code), h.Name())
}

// explainUnknownHost returns the reason why code cannot reach a host. The catalog lacks the hosts of an API that does
// not load, so the reason names such an API.
func explainUnknownHost(host hostname.Host, cat proxyapi.Catalog) readertext.Text {
	near := suggestHost(host, cat)
	more, api := host.ExplainUnknown(near), ""
	for _, p := range cat.Problems {
		if p.Warning || p.API == "" {
			continue
		}
		more, api = "{The user can add others|apis/%API/config.json does not load: codeforge check shows why. If another "+
			"API should have the host, add it to \"domains\" there}.", p.API
		if near != "" {
			more = host.ExplainUnknown(near) + "{| apis/%API/config.json does not load: codeforge check shows why.}"
		}
	}
	return readertext.NewText("%HOST is in no API{| that is loaded}. {list_apis shows the open hosts. |}"+more,
		"%HOST", host.String(), "%API", api)
}

// hostAt parses a host and port in Deno's notation.
func hostAt(text string) (hostname.Host, error) {
	name, digits, _ := strings.Cut(text, ":")
	host, err := hostname.Parse(name)
	port, bad := strconv.ParseUint(digits, 10, 16)
	if bad != nil {
		port = 0
	}
	return host.AtPort(uint16(port)), err
}

// maxElsewhere is the largest number of domains in one hint.
const maxElsewhere = 4

// listOtherPorts lists the domains with the same host at any port, or returns "".
func listOtherPorts(h hostname.Host, cat proxyapi.Catalog) string {
	var at []string
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			name, _, _ := strings.Cut(d, ":")
			if (name == h.Name() || name == h.WildcardPattern().Name()) && len(at) < maxElsewhere && !slices.Contains(at, d) {
				at = append(at, d)
			}
		}
	}
	return strings.Join(at, ", ")
}

// hintModules returns hints for modules that do not exist: the caller's local files, and skills.
func (r runRendering) hintModules(printed string) []readertext.Text {
	var out []readertext.Text
	for _, m := range moduleRefusal.FindAllStringSubmatch(printed, maxHints) {
		_, name, isSkill := strings.Cut(m[1], "/skills/")
		name, isModule := strings.CutSuffix(name, ".ts")
		switch {
		case isSkill && isModule && skillWord.MatchString(name):
			why := explainNoSuchSkill(name, r.skills)
			out = append(out, readertext.Text{Model: why, Person: why})
		case strings.HasPrefix(m[1], "/code/apis/"):
			out = append(out, r.hintMissingClient(m[1]))
		case strings.HasPrefix(m[1], "/code/"):
			out = append(out, readertext.NewText("{Only this module is sent. Put the code of others into it, or write them to "+
				"/skills/<name>.ts first and import them from there|Only the script is sent: if it imports files beside it, "+
				"pipe the output of deno bundle into codeforge run -}."))
		}
	}
	return out
}

// hintMissingClient returns the hint for a typed client that could not be imported. path begins with /code/apis/.
func (r runRendering) hintMissingClient(path string) readertext.Text {
	name := strings.TrimSuffix(strings.TrimPrefix(path, "/code/apis/"), ".ts")
	known := convert.Each(r.catalog.APIs, func(a proxyapi.API) string { return a.Name })
	if slices.Contains(known, name) {
		return readertext.NewText("Import the typed client by its whole path: \"/apis/%NAME.ts\".", "%NAME", name)
	}
	// The name comes from the output, which code can forge.
	if !skillWord.MatchString(name) {
		name = "of that name"
	}
	return readertext.NewText("%WHY", "%WHY", explainNoSuchAPI("/apis", name, known))
}

// skillWord matches the part of a path below /skills that a hint may repeat.
var skillWord = regexp.MustCompile(`^[\w-]{1,64}$`)

// explainNoSuchSkill reports that a skill does not exist, and lists existing ones.
func explainNoSuchSkill(name string, skills []string) string {
	m := fmt.Sprintf("There is no skill %.80q.", name)
	if near := typo.NearestOf(name, len(name)/2, skills); near != "" {
		return m + fmt.Sprintf(" Did you mean %q?", near)
	}
	if len(skills) > 0 {
		m += " The skills are " + strings.Join(skills[:min(len(skills), 20)], ", ") + "."
	}
	return m
}

// hasExplanation reports whether a hint explains the end of a run, so that a result can omit most of Deno's text.
func (r runRendering) hasExplanation(stderr string) bool {
	_, words := splitError(stderr)
	return words != "" && (len(hintRefusals(words, runRendering{catalog: r.catalog, skills: r.skills})) > 0 ||
		len(r.hintNotJSON(words)) > 0)
}

// suggestHost names the known host that is most similar to a misspelt one, at its port if known, or returns "".
func suggestHost(host hostname.Host, cat proxyapi.Catalog) string {
	var names, domains []string
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			name, _, _ := strings.Cut(d, ":")
			names, domains = append(names, name), append(domains, d)
		}
	}
	near := typo.NearestOf(host.Name(), 3, names)
	if near == "" {
		return ""
	}
	at := domains[slices.Index(names, near)]
	for _, d := range []string{near, near + strings.TrimPrefix(host.String(), host.Name())} {
		if slices.Contains(domains, d) {
			at = d
		}
	}
	return at
}

// explainNoServers returns the reason why mcp is not defined in code.
func explainNoServers(cat proxyapi.Catalog) readertext.Text {
	if !hasServers(cat) {
		return readertext.NewText("No MCP server is configured, so there is no mcp. {The user can add|Add} one as " +
			"apis/<name>/config.json.")
	}
	return readertext.NewText("mcp is a global, without an import, of runs whose apis include an MCP server: " +
		"{those with \"mcp\" in list_apis|codeforge status shows them}.")
}

// serverWants matches a server's error about a host that the server may not reach.
var serverWants = mustCompile(`McpError: ([\w-]{1,64})\.[^\n]*?Requires net access to "([^"\s]{1,300})"`)

// serverFile matches a server's error about a file that the server may not use.
var serverFile = mustCompile(`McpError: ([\w-]{1,64})\.[^\n]*?Requires (?:read|write) access to `)

// hintServerErrors removes servers' error lines from the output and returns hints for them. Otherwise these lines would
// look like Deno's text about the code itself.
func hintServerErrors(printed string, cat proxyapi.Catalog) (rest string, hints []readertext.Text) {
	for _, m := range serverWants.FindAllStringSubmatch(printed, maxHints) {
		// A server can write any text into its error, so only valid hosts and known servers count.
		name, err := hostAt(m[2])
		if err != nil || !hasServer(cat, m[1]) {
			continue
		}
		hints = append(hints, readertext.NewText("The server %NAME wants to reach %HOST, which is not in its domains. "+
			"{The user can add|Add} it in apis/%NAME/config.json.", "%NAME", m[1], "%HOST", name.String()))
	}
	if m := serverFile.FindStringSubmatch(printed); m != nil && hasServer(cat, m[1]) {
		hints = append(hints, readertext.NewText("The server %NAME may use only files of its home. "+
			"{The user can name|Name} a path there, such as ~/x, in apis/%NAME/config.json.", "%NAME", m[1]))
	}
	lines := slices.DeleteFunc(strings.Split(printed, "\n"), func(l string) bool {
		return strings.Contains(l, "McpError: ")
	})
	return strings.Join(lines, "\n"), hints
}
