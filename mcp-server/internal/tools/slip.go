package tools

import (
	"regexp"
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
	isTraceback = regexp.MustCompile(`(?m)^(?:Traceback \(most recent call last\):|  File "[^"\n]+", line \d+)`)
	unsetToken  = mustCompile(`in __getitem__\n(?:[ ~^][^\n]*\n)*KeyError: '(\w{1,80})'`)
	// isHTTPError matches the end of a traceback of urllib, which shows the status and not the answer.
	isHTTPError = mustCompile(`(?m)^urllib\.error\.HTTPError: HTTP Error \d{3}`)
	// maybeUnset matches a Python read of a variable that may return None. The second group matches a following "or" with
	// a default.
	maybeUnset = regexp.MustCompile(`(?:environ\.get|getenv)\(\s*["'](\w{1,80})["']\s*\)(\s*or\b)?`)
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
		if token := nearestToken(m[1]+m[2], r.catalog); token != "" {
			out = append(out, hintQuotes(token))
		}
	}
	if isHTTPError.MatchString(words) {
		out = append(out, readertext.NewText("The API's answer is in the error: except urllib.error.HTTPError as e: "+
			"print(e.code, e.read().decode())."))
		out = append(out, r.hintRedirect()...)
	}
	// With a path in /skills, the mistake is in a skill and not in the code.
	if isReturn.MatchString(words) && !strings.Contains(words, "/skills/") {
		out = append(out,
			readertext.NewText("The code is a module and not a function: print the result instead of returning it."))
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

// isExplained reports whether stderr has the error that ended the run, in the form of its language.
func (r runRendering) isExplained() bool {
	stderr, _ := r.stderr.Text(r.limit)
	if r.language.IsPython() {
		return isTraceback.MatchString(stderr)
	}
	_, words := splitError(stderr)
	return words != ""
}
