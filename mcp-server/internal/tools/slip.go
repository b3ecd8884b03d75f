package tools

import (
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/internal/voice"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/pattern"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/uncaught"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// What interpreters print when code fails for the reasons below.
var (
	undefined = pattern.MustCompile(`(?m)ReferenceError: (\w{1,80}) is not defined$|` +
		`^NameError: name '(\w{1,80})' is not defined`)
	isReturn = pattern.MustCompile(`(?m)SyntaxError: Illegal return statement$|` +
		`^SyntaxError: 'return' outside function$`)
	isSyntax    = pattern.MustCompile(`(?m)(?:^|error: |Uncaught )(?:SyntaxError|IndentationError): |is not a function$`)
	isTraceback = regexp.MustCompile(`(?m)^(?:Traceback \(most recent call last\):|  File "[^"\n]+", line \d+)`)
	unsetToken  = pattern.MustCompile(`Requires env access to "(\w{1,80})"|` +
		`in __getitem__\n(?:[ ~^][^\n]*\n)*KeyError: '(\w{1,80})'`)
	// maybeUnset reads a variable in Python, which gives None; with a second group there is something in its place.
	maybeUnset = regexp.MustCompile(`(?:environ\.get|getenv)\(\s*["'](\w{1,80})["']\s*\)(\s*or\b)?`)
)

// inPython is what Python has in the place of a name of TypeScript, inTypeScript the other way round.
var (
	inPython = map[string]string{
		"fetch": "urllib.request.urlopen()", "console": "print()", "JSON": "the module json", "Date": "the module datetime",
		"null": "None", "undefined": "None", "true": "True", "false": "False",
	}
	inTypeScript = map[string]string{
		"print": "console.log()", "None": "null", "True": "true", "False": "false", "requests": "fetch()",
		"json": "JSON", "len": ".length", "str": "String()",
	}
)

// slips are hints for what code has got wrong by itself. Code can print anything, so only what stands on standard error
// counts, the interpreter's words if they can be told apart, and only if the code has failed.
func (r rendering) slips(stderr string) (out []voice.Text) {
	for _, m := range maybeUnset.FindAllStringSubmatch(r.code, maxHints) {
		if name := tokenNamed(m[1], r.catalog); r.isPython && m[2] == "" && name != "" {
			out = append(out, asText(name))
		}
	}
	if r.outcome.Exit.Code == 0 {
		return out
	}
	words := stderr
	if !r.isPython {
		_, words = uncaught.Split(stderr)
	}
	if m := unsetToken.FindStringSubmatch(words); m != nil {
		if name := tokenNamed(m[1]+m[2], r.catalog); name != "" {
			out = append(out, asText(name))
		}
	}
	if m := undefined.FindStringSubmatch(words); m != nil {
		out = append(out, r.notDefined(m[1]+m[2])...)
	}
	switch {
	case strings.Contains(words, "/skills/"): // a skill is wrong, not the code
	case isReturn.MatchString(words):
		out = append(out, voice.Say("The code is a module and not a function: print the result instead of returning it."))
	case isSyntax.MatchString(words) && hasProse(r.code, words):
		out = append(out, voice.Say("Send the code alone, without sentences and without ``` around it."))
	}
	return out
}

// notDefined are hints for a name that code uses without defining it.
func (r rendering) notDefined(name string) []voice.Text {
	if token := tokenNamed(name, r.catalog); token != "" {
		return []voice.Text{asText(token)}
	}
	there := inTypeScript[name]
	if r.isPython {
		if there = inPython[name]; name == "fetch" && slices.Contains(r.python.Packages, "requests") {
			there = "requests.get()"
		}
	}
	if there == "" || r.isForeign() { // then all of the code is in the wrong language, which ofLanguage says
		return nil
	}
	return []voice.Text{voice.Say(r.word("%NAME is Python's; TypeScript has %THERE.",
		"%NAME is TypeScript's; Python has %THERE."), "%NAME", name, "%THERE", there)}
}

// tokenNamed is the token name that a name is, or is a slip or two away from; empty if there is none.
func tokenNamed(name string, cat controlapi.Catalog) string {
	if name != strings.ToUpper(name) {
		return ""
	}
	var names []string
	for _, a := range cat.APIs {
		for _, t := range a.Credentials {
			names = append(names, t.Name)
		}
	}
	return typo.Nearest(name, min(2, len(name)/4), names)
}

// asText says how code writes a token name.
func asText(token string) voice.Text {
	return voice.Say("A token name is text: write \"%NAME\" in quotes, where the credential belongs.", "%NAME", token)
}

// Functions that code defines at its top level, and what makes a file of code.
var (
	functions = regexp.MustCompile(`(?m)^(?:export +(?:default +)?)?(?:async +)?(?:function\*?|def) +(\w{1,80})|` +
		`^(?:const|let|var) +(\w{1,80}) *= *(?:async *)?(?:\([^()\n]*\)|\w+)(?: *:[^=\n]+)? *=>`)
	writesFile = regexp.MustCompile(`\b(?:writeTextFile|writeFile|appendFile|write|write_text|write_bytes)(?:Sync)?\(`)
)

// uncalled is a function that code defines and does not name again, if that is all that it defines or its name is main
// or run; else empty. Code that writes a file may define it there.
func uncalled(code string) string {
	if writesFile.MatchString(code) {
		return ""
	}
	found := functions.FindAllStringSubmatch(code, 100)
	for _, m := range found {
		name := m[1] + m[2]
		if len(found) > 1 && name != "main" && name != "run" {
			continue
		}
		if len(regexp.MustCompile(`\b`+name+`\b`).FindAllStringIndex(code, 2)) == 1 {
			return name
		}
	}
	return ""
}

// isExplained reports whether stderr tells why the run failed: with an error that its language reports.
func (r rendering) isExplained() bool {
	stderr, _ := r.stderr.Text(r.limit)
	if r.isPython {
		return isTraceback.MatchString(stderr)
	}
	_, words := uncaught.Split(stderr)
	return words != ""
}
