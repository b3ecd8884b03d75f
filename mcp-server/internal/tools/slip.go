package tools

import (
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// These match the errors that interpreters print for common mistakes.
var (
	undefined = mustCompile(`(?m)ReferenceError: (\w{1,80}) is not defined$|` +
		`^NameError: name '(\w{1,80})' is not defined`)
	isReturn = mustCompile(`(?m)SyntaxError: Illegal return statement$|` +
		`^SyntaxError: 'return' outside function$`)
	isSyntax    = mustCompile(`(?m)(?:^|error: |Uncaught )(?:SyntaxError|IndentationError): |is not a function$`)
	isTraceback = regexp.MustCompile(`(?m)^(?:Traceback \(most recent call last\):|  File "[^"\n]+", line \d+)`)
	unsetToken  = mustCompile(`in __getitem__\n(?:[ ~^][^\n]*\n)*KeyError: '(\w{1,80})'`)
	// isHTTPError matches the end of a traceback of urllib, which shows the status and not the answer.
	isHTTPError = mustCompile(`(?m)^urllib\.error\.HTTPError: HTTP Error \d{3}`)
	// maybeUnset matches a Python read of a variable that may return None. The second group matches a following "or" with
	// a default.
	maybeUnset = regexp.MustCompile(`(?:environ\.get|getenv)\(\s*["'](\w{1,80})["']\s*\)(\s*or\b)?`)
)

// inPython maps a name of TypeScript to its counterpart in Python, inTypeScript the other way round.
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

// hintSlips returns hints on mistakes in the code itself. Code can print any text, so most hints need a failed run.
// They use only the interpreter's text, if it can be distinguished from the code's output.
func (r runRendering) hintSlips(stderr string) (out []readertext.Text) {
	// Checked after a success too: code that gets None may go on without a credential. A token name itself is a variable.
	for _, m := range maybeUnset.FindAllStringSubmatch(r.code, maxHints) {
		if name := nearestToken(m[1], r.catalog); r.language.IsPython() && m[2] == "" && name != "" && name != m[1] {
			out = append(out, hintQuotes(name))
		}
	}
	if r.outcome.Exit.Code == 0 {
		return out
	}
	words := stderr
	if !r.language.IsPython() {
		_, words = splitError(stderr)
	}
	if m := unsetToken.FindStringSubmatch(words); m != nil {
		switch name := nearestToken(m[1], r.catalog); name {
		case "":
		case m[1]:
			out = append(out, readertext.NewText("This run has no variable %NAME. If the run is narrowed, add the API "+
				"with this token name to \"apis\".", "%NAME", name))
		default:
			out = append(out, hintQuotes(name))
		}
	}
	if m := undefined.FindStringSubmatch(words); m != nil {
		out = append(out, r.hintUndefined(m[1]+m[2])...)
	}
	if isHTTPError.MatchString(words) {
		out = append(out, readertext.NewText("The API's answer is in the error: except urllib.error.HTTPError as e: "+
			"print(e.code, e.read().decode())."))
		out = append(out, r.hintRedirect()...)
	}
	switch {
	case strings.Contains(words, "/skills/"): // the mistake is in a skill, not in the code
	case isReturn.MatchString(words):
		out = append(out,
			readertext.NewText("The code is a module and not a function: print the result instead of returning it."))
	case isSyntax.MatchString(words) && hasProse(r.code, words):
		out = append(out, readertext.NewText("Send the code alone, without sentences and without ``` around it."))
	}
	return out
}

// hintRedirect returns the hint on a redirect that took a credential to another host. Storage services refuse such a
// request, because the link has a signature. Deno leaves the credential out, and urllib does not.
func (r runRendering) hintRedirect() []readertext.Text {
	list := r.outcome.Receipt.Exchanges
	for i, x := range list {
		if i > 0 && list[i-1].Status/100 == 3 && list[i-1].Host != x.Host && len(x.Swapped) > 0 && x.Status >= 400 {
			return []readertext.Text{readertext.NewText("urllib sent %TOKEN to another host after a redirect. "+
				"Open the Location of the redirect without it.", "%TOKEN", x.Swapped[0].Name)}
		}
	}
	return nil
}

// hintUndefined returns hints on a name that code uses without defining it.
func (r runRendering) hintUndefined(name string) []readertext.Text {
	if token := nearestToken(name, r.catalog); token != "" {
		return []readertext.Text{hintQuotes(token)}
	}
	there := inTypeScript[name]
	if r.language.IsPython() {
		if there = inPython[name]; name == "fetch" && slices.Contains(r.python.Packages, "requests") {
			there = "requests.get()"
		}
	}
	if there == "" || r.isForeign() { // ofLanguage has a hint if all of the code is in the wrong language
		return nil
	}
	return []readertext.Text{readertext.NewText(r.languageWord("%NAME is Python's; TypeScript has %THERE.",
		"%NAME is TypeScript's; Python has %THERE."), "%NAME", name, "%THERE", there)}
}

// nearestToken returns the token name that differs from name by at most two slips, or "".
// Token names are upper case, so a local variable must not look like one.
func nearestToken(name string, cat proxyapi.Catalog) string {
	if name != strings.ToUpper(name) {
		return ""
	}
	var names []string
	for _, a := range cat.APIs {
		for _, t := range a.Credentials {
			names = append(names, t.Name)
		}
	}
	return typo.NearestOf(name, min(2, len(name)/4), names)
}

// hintQuotes returns the hint on how code writes a token name.
func hintQuotes(token string) readertext.Text {
	return readertext.NewText("A token name is text: write \"%NAME\" in quotes, where the credential belongs.", "%NAME",
		token)
}

// functions matches a function at the top level of code. writesFile matches a call that writes a file.
var (
	functions = regexp.MustCompile(`(?m)^(?:export +(?:default +)?)?(?:async +)?(?:function\*?|def) +(\w{1,80})|` +
		`^(?:const|let|var) +(\w{1,80}) *= *(?:async *)?(?:\([^()\n]*\)|\w+)(?: *:[^=\n]+)? *=>`)
	writesFile = regexp.MustCompile(`\b(?:writeTextFile|writeFile|appendFile|write|write_text|write_bytes)(?:Sync)?\(`)
)

// findUncalled returns the name of a function that code defines and never uses, or "". The function must be the only
// one, or be called main or run. Code that writes a file is skipped, because the definition may be text for that file.
func findUncalled(code string) string {
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

// isExplained reports whether stderr has the error that ended the run, in the form of its language.
func (r runRendering) isExplained() bool {
	stderr, _ := r.stderr.Text(r.limit)
	if r.language.IsPython() {
		return isTraceback.MatchString(stderr)
	}
	_, words := splitError(stderr)
	return words != ""
}
