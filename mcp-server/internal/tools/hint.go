package tools

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/hostname"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/internal/voice"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// hints returns sentences on what to do differently, each once, at most maxHints: the proxy's, then those for what Deno
// refused. What code has printed itself is not repeated: a refusal's body has the hint too.
func (r rendering) hints() []voice.Text {
	stdout, _ := r.stdout.Text(r.limit)
	stderr, _ := r.stderr.Text(r.limit)
	printed := stderr + "\n" + stdout
	said := func(s string) bool {
		inJSON := strings.Trim(jsonText(s), `"`)
		return s == "" || strings.Contains(printed, s) || strings.Contains(printed, inJSON)
	}
	var out []voice.Text
	seen := map[string]bool{}
	add := func(key, person string, t voice.Text) {
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
		if t != (voice.Text{}) {
			out = append(out, t)
		}
	}
	for _, h := range r.outcome.Receipt.Hints {
		if h.Code == controlapi.HintETag && !usesETag.MatchString(r.code) {
			continue // most responses have one, and most code reads none
		}
		t := h.Voice()
		add(h.Text, strings.TrimPrefix(t.Person, h.About()), t)
	}
	for _, t := range slices.Concat(r.hintFailedResponses(), r.notJSON(printed), r.hintSlips(stderr), refusals(printed, r),
		r.ofLanguage(printed)) {
		add(t.Model, t.Person, t)
	}
	if !r.isPython && shortened.MatchString(stdout) {
		t := voice.Say("console.log shortens long lists and deep objects: print JSON.stringify(x) to see all.")
		add(t.Model, t.Person, t)
	}
	if n := len(out) - maxHints; n > 0 {
		out = append(out[:maxHints], voice.Say("%N more hints are left out.", "%N", strconv.Itoa(n)))
	}
	return out
}

// usesETag matches code that may read an ETag. It matches imports of skills, which can read one too.
var usesETag = regexp.MustCompile(`(?i)etag|if[-_]?(?:none[-_]?)?match|headobject|head_object|/skills/`)

// What code printed when it read something else as JSON.
var (
	notJSON = mustCompile(`SyntaxError: [^\n]*(?:is not valid JSON|Unexpected end of JSON input|after JSON)|` +
		`JSONDecodeError: `)
	plainPath = regexp.MustCompile(`^/[A-Za-z0-9/_.~-]{0,80}$`)
)

// maxNotJSON is how many answers are named that code may have read as JSON.
const maxNotJSON = 2

// notJSON names the last answers that were no JSON, if code read one of them as JSON.
func (r rendering) notJSON(printed string) []voice.Text {
	if !notJSON.MatchString(printed) {
		return nil
	}
	var out []voice.Text
	for _, x := range slices.Backward(r.outcome.Receipt.Exchanges) {
		what := ""
		switch {
		case x.Outcome != controlapi.OutcomeServed || x.Call() != "":
		case x.BytesDown == 0:
			what = "an empty body"
		case x.Type != "" && x.Type != "application/json":
			what = x.Type
		}
		host, err := hostname.ParsePattern(x.Host)
		if what == "" || err != nil {
			continue
		}
		path := ""
		if _, rest, ok := strings.Cut(x.URL, "://"+x.Host); ok {
			rest, _, _ = strings.Cut(rest, "?")
			if plainPath.MatchString(rest) {
				path = rest
			}
		}
		t := voice.Say("%METHOD %HOST answered %STATUS with %WHAT, not JSON. Check "+
			r.word("answer.ok and the path, and print (await answer.text()).slice(0, 300).",
				"the status and the path, and print the first 300 characters of the answer."),
			"%METHOD", method(x.Method), "%HOST", host.String()+path, "%STATUS", strconv.Itoa(x.Status), "%WHAT", what)
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
		if len(out) == maxNotJSON {
			break
		}
	}
	return out
}

// method is a method that is not code's own text.
func method(m string) string {
	if slices.Contains([]string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}, m) {
		return m
	}
	return "a request to"
}

// What Deno and Python print when they refuse something themselves, or cannot do it in the sandbox.
var (
	netRefusal = mustCompile(`Requires net access to "([^"\s]{1,300})"`)
	// closedPort: a host without a port in domains is allowed at each, and the proxy listens at those of domains only.
	closedPort = mustCompile(`url \(https?://([^/\s()]{1,300}:\d+)/[^\s()]*\): client error \(Connect\): ` +
		`tcp connect error: Connection refused`)
	fileRefusal  = mustCompile(`Requires (?:read|write) access to |\[Errno 30\] Read-only file system`)
	otherRefusal = mustCompile(`Requires (?:env|run|ffi|sys|import) access|NotFound: Failed to spawn '|` +
		`File "(?:<frozen os>|[^"\n]*/os\.py)", line \d+, in __getitem__\n(?:[ ~^][^\n]*\n)*KeyError: `)
	mcpRefusal = mustCompile(`ReferenceError: (?:mcp|McpError) is not defined|` +
		`Relative import path "mcp" not prefixed|Import "mcp" not a dependency`)
	importRefusal = mustCompile(`[Aa] remote specifier was requested|` +
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

// refusals returns hints for what Deno refused before it reached the proxy, and for what it left out. Code can print
// anything, so a host or a skill counts only if its name is valid.
func refusals(printed string, r rendering) []voice.Text {
	printed, out := ofServers(printed, r.catalog)
	out = append(out, r.hostRefusals(printed)...)
	add := func(is bool, template string, values ...string) {
		if is {
			out = append(out, voice.Say(template, values...))
		}
	}
	wantsMCP := mcpRefusal.MatchString(printed)
	if wantsMCP {
		out = append(out, noServers(r.catalog))
	}
	folder := folderImport.FindStringSubmatch(printed)
	if folder != nil {
		add(true, "Import it by its whole path: \"%PATH.ts\".", "%PATH", "/"+folder[1])
	}
	isPackage := !wantsMCP && folder == nil && importRefusal.MatchString(printed)
	add(isPackage, "Packages and URLs cannot be imported. Use what Deno has built in (\"node:fs\" too), fetch, and "+
		"modules in /skills.")
	add(requireRefusal.MatchString(printed), "There is no CommonJS: write import fs from \"node:fs\".")
	out = append(out, r.moduleRefusals(printed)...)
	if m := brokenSkill.FindStringSubmatch(printed); m != nil && slices.Contains(r.skills, m[1]) {
		add(true, "The skill %NAME does not load: correct it {with update_skill|in a run, or remove it with codeforge "+
			"skills rm %NAME}.", "%NAME", m[1])
	}
	may := "Code may read /tmp, /skills and /runs, and write /tmp and /skills."
	if r.private {
		may = "Code may read and write its working directory alone, by relative paths. update_skill makes and changes skills."
	}
	add(fileRefusal.MatchString(printed), may)
	add(otherRefusal.MatchString(printed), "Environment variables, processes and native code are not available to code.")
	add(sizeRefusal.MatchString(printed),
		fmt.Sprintf("A file may have at most %d MiB: write several.", runapi.MaxFile>>20))
	if m := spaceRefusal.FindStringSubmatch(printed); m != nil {
		add(true, "The disk of %DISK is full, and the file that was written last is incomplete: remove files that are no "+
			"longer needed.", "%DISK", cmp.Or(m[1], "/tmp or /skills"))
	}
	return out
}

// hostRefusals are the hints for hosts that Deno did not let code reach.
func (r rendering) hostRefusals(printed string) []voice.Text {
	cat := r.catalog
	var out []voice.Text
	seen := map[string]bool{}
	refused := netRefusal.FindAllStringSubmatch(printed, 50)
	for _, m := range closedPort.FindAllStringSubmatch(printed, 50) {
		if host, err := hostAt(m[1]); err == nil && !slices.Contains(strings.Split(elsewhere(host, cat), ", "), m[1]) {
			refused = append(refused, m)
		}
	}
	for _, m := range refused {
		name := m[1]
		if seen[name] || len(out) > maxHints {
			continue
		}
		seen[name] = true
		host, err := hostAt(name)
		switch at := elsewhere(host, cat); {
		case err != nil:
			out = append(out, voice.Say("The sandbox reaches hosts by name only, and only those of configured APIs."))
		case at != "":
			t := voice.Say("%HOST is not open at this port. The open hosts are: %AT. {The user can add|Add} the port to "+
				"\"domains\" in apis/<name>/config.json.", "%HOST", host.Name(), "%AT", at)
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		case r.triedHost(host):
			out = append(out, noAPI(host, cat))
		}
	}
	return out
}

// triedHost reports whether the run appears to have tried to reach a host. A run that succeeded may have printed the
// text of a server, which could recommend a host to the user in this way: then the code must name the host.
func (r rendering) triedHost(h hostname.Host) bool {
	exit := r.outcome.Exit
	return exit.Reason != runapi.Exited || exit.Code != 0 || strings.Contains(strings.ToLower(r.code), h.Name())
}

// noAPI is why code cannot reach a host.
func noAPI(host hostname.Host, cat controlapi.Catalog) voice.Text {
	return voice.Say("%HOST is in no API.%NEAR {list_apis shows the open hosts; the user can add others|"+
		"codeforge status shows the open hosts; add it to \"domains\" in apis/<name>/config.json}.",
		"%HOST", host.Name(), "%NEAR", suggest(host, cat))
}

// hostAt reads a host with its port, as Deno names it.
func hostAt(text string) (hostname.Host, error) {
	name, digits, _ := strings.Cut(text, ":")
	host, err := hostname.Parse(name)
	port, bad := strconv.ParseUint(digits, 10, 16)
	if bad != nil {
		port = 0
	}
	return host.At(uint16(port)), err
}

// maxElsewhere is how many domains a hint names.
const maxElsewhere = 4

// elsewhere lists the domains that have a host, at whatever port; empty if none has.
func elsewhere(h hostname.Host, cat controlapi.Catalog) string {
	var at []string
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			name, _, _ := strings.Cut(d, ":")
			if (name == h.Name() || name == h.Wildcard().Name()) && len(at) < maxElsewhere && !slices.Contains(at, d) {
				at = append(at, d)
			}
		}
	}
	return strings.Join(at, ", ")
}

// moduleRefusals are the hints for modules that are not there: files of the caller's, and skills.
func (r rendering) moduleRefusals(printed string) []voice.Text {
	var out []voice.Text
	for _, m := range moduleRefusal.FindAllStringSubmatch(printed, maxHints) {
		_, name, isSkill := strings.Cut(m[1], "/skills/")
		name, isModule := strings.CutSuffix(name, ".ts")
		switch {
		case isSkill && isModule && skillWord.MatchString(name):
			out = append(out, voice.Text{Model: noSuchSkill(name, r.skills), Person: noSuchSkill(name, r.skills)})
		case strings.HasPrefix(m[1], "/code/apis/"):
			out = append(out, r.hintMissingClient(m[1]))
		case strings.HasPrefix(m[1], "/code/"):
			out = append(out, voice.Say("{Only this module is sent. Put the code of others into it, or write them to "+
				"/skills/<name>.ts first and import them from there|Files beside a script are taken along only by codeforge run "+
				"FILE.ts, and only those that it imports as \"./...\"}."))
		}
	}
	return out
}

// hintMissingClient returns the hint on a typed client that could not be imported. path begins with /code/apis/.
func (r rendering) hintMissingClient(path string) voice.Text {
	name := strings.TrimSuffix(strings.TrimPrefix(path, "/code/apis/"), ".ts")
	var known []string
	for _, a := range r.catalog.APIs {
		known = append(known, a.Name)
	}
	if slices.Contains(known, name) {
		return voice.Say("Import the typed client by its whole path: \"/apis/%NAME.ts\".", "%NAME", name)
	}
	if !skillWord.MatchString(name) {
		name = "of that name"
	}
	return voice.Say("%WHY", "%WHY", noSuchAPI("/apis", name, known))
}

// skillWord is what a hint repeats of a path below /skills.
var skillWord = regexp.MustCompile(`^[\w-]{1,64}$`)

// noSuchSkill says that a skill does not exist, and which ones do.
func noSuchSkill(name string, skills []string) string {
	m := fmt.Sprintf("There is no skill %.80q.", name)
	if near := typo.Nearest(name, len(name)/2, skills); near != "" {
		return m + fmt.Sprintf(" Did you mean %q?", near)
	}
	if len(skills) > 0 {
		m += " The skills are " + strings.Join(skills[:min(len(skills), 20)], ", ") + "."
	}
	return m
}

// explained reports whether a hint tells what ended a run, so that a result need not show all of Deno's words.
func (r rendering) explained(stderr string) bool {
	_, words := splitError(stderr)
	return words != "" && (len(refusals(words, rendering{catalog: r.catalog, skills: r.skills})) > 0 ||
		len(r.notJSON(words)) > 0)
}

// suggest names the known host that a misspelt one resembles most, at its port if that is known, or returns an empty
// string.
func suggest(host hostname.Host, cat controlapi.Catalog) string {
	var names, domains []string
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			name, _, _ := strings.Cut(d, ":")
			names, domains = append(names, name), append(domains, d)
		}
	}
	near := typo.Nearest(host.Name(), 3, names)
	if near == "" {
		return ""
	}
	at := domains[slices.Index(names, near)]
	for _, d := range []string{near, near + strings.TrimPrefix(host.String(), host.Name())} {
		if slices.Contains(domains, d) {
			at = d
		}
	}
	return " Did you mean " + at + "?"
}

// noServers is why code has no mcp.
func noServers(cat controlapi.Catalog) voice.Text {
	if !hasServers(cat) {
		return voice.Say("No MCP server is configured, so there is no mcp. {The user can add|Add} one as " +
			"apis/<name>/config.json.")
	}
	return voice.Say("mcp is a global, without an import, of runs whose apis include an MCP server: " +
		"{those with \"mcp\" in list_apis|codeforge status shows them}.")
}

// serverWants matches what a server from npm says of a host that it may not reach, as its error reaches code.
var serverWants = mustCompile(`McpError: ([\w-]{1,64})\.[^\n]*?Requires net access to "([^"\s]{1,300})"`)

// serverFile matches what such a server says of a file that it may not use.
var serverFile = mustCompile(`McpError: ([\w-]{1,64})\.[^\n]*?Requires (?:read|write) access to `)

// ofServers takes the words of servers out of what was printed, which would otherwise read as Deno's about the code
// itself, and returns hints for them.
func ofServers(printed string, cat controlapi.Catalog) (rest string, hints []voice.Text) {
	for _, m := range serverWants.FindAllStringSubmatch(printed, maxHints) {
		name, err := hostAt(m[2])
		if err != nil || !hasServer(cat, m[1]) {
			continue
		}
		hints = append(hints, voice.Say("The server %NAME wants to reach %HOST, which is not in its domains. "+
			"{The user can add|Add} it in apis/%NAME/config.json.", "%NAME", m[1], "%HOST", name.String()))
	}
	if m := serverFile.FindStringSubmatch(printed); m != nil && hasServer(cat, m[1]) {
		hints = append(hints, voice.Say("The server %NAME may use no files but those of its home. "+
			"{The user can name|Name} a path there, such as ~/x, in apis/%NAME/config.json.", "%NAME", m[1]))
	}
	lines := slices.DeleteFunc(strings.Split(printed, "\n"), func(l string) bool {
		return strings.Contains(l, "McpError: ")
	})
	return strings.Join(lines, "\n"), hints
}
