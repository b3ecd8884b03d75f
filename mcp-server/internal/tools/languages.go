package tools

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/hostname"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// AcceptReport receives the sandbox's report. The tool that runs code lists the available languages.
func (s *Surface) AcceptReport(h sandboxapi.Health) {
	old := s.pythonReport()
	s.report.Store(&h)
	// Only a real change, because replacing a tool sends every client a notification.
	if (h.Python.Version != "") != (old.Version != "") {
		s.addExecute()
	}
}

// pythonReport returns the sandbox's last report about Python.
func (s *Surface) pythonReport() sandboxapi.Python {
	if h := s.report.Load(); h != nil {
		return h.Python
	}
	return sandboxapi.Python{}
}

// folderLine names the folders of the host that code sees, for a model. Without folders it is empty.
func (s *Surface) folderLine() string {
	h := s.report.Load()
	if h == nil {
		return ""
	}
	var list []string
	for _, f := range h.Folders {
		if t := s.cfg.Tenant; t != nil && !t.CanUseFolder(f.Name) {
			continue
		}
		name := "/files/" + f.Name
		if f.Write {
			name += " (writable)"
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		return ""
	}
	return "Code can use these folders of the user: " + strings.Join(list, ", ") + "."
}

// readLanguage reads the argument language. tag is the word after the code's fence. It counts if the argument is
// missing.
func (s *Surface) readLanguage(a *argumentReader, tag string) sandboxapi.Language {
	p := s.pythonReport()
	want := `"typescript" or "python"`
	if p.Version == "" {
		want = `"typescript"`
	}
	language := sandboxapi.Language(strings.ToLower(a.Text("language", want, false)))
	language = cmp.Or(language, readFenceLanguage(a, tag, language))
	switch {
	case language == "" || language == sandboxapi.LanguageTypeScript:
	case language.IsPython() && p.Version != "":
		return language
	case language.IsPython():
		a.AddMistake("language: Python is not available here" + formatReason(p.Problem) + "; write TypeScript")
	default:
		a.AddMistake(fmt.Sprintf("language: found %.40q, want %s", language, want))
	}
	return sandboxapi.LanguageTypeScript
}

func formatReason(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + problem + ")"
}

// Output of Python if something is missing or refused.
var (
	noModule  = mustCompile(`(?m)^ModuleNotFoundError: No module named '([\w.-]{1,80})'`)
	noName    = mustCompile(`(?m)^NameError: name '(?:mcp|stash|parallel|McpError)' is not defined`)
	noProcess = mustCompile(`(?m)^PermissionError: \[Errno 1\] Operation not permitted$|` +
		`^BlockingIOError: \[Errno 11\]|_multiprocessing\.SemLock\(`) // the last for pools of processes
	noAwait     = mustCompile(`(?m)^TypeError: object [\w.]{1,80} can't be used in 'await' expression`)
	awaitedTool = regexp.MustCompile(`await\s+mcp[.\[]`)
	noAddress   = mustCompile(`gaierror|Name or service not known|Temporary failure in name resolution`)
	urlHost     = regexp.MustCompile(`https?://([A-Za-z0-9.-]{1,253})`)
	noParse     = mustCompile(`(?m)^(?:SyntaxError|IndentationError): `)
	denoParse   = mustCompile(`could not be parsed|SyntaxError|` +
		`ReferenceError: (?:print|True|False|None|def) is not defined`)
)

// Signs of one language in code that was run as the other.
var (
	likeTypeScript = regexp.MustCompile(`(?m)^\s*(?:const|let|export|interface|async function|function)\s+[\w{\[*]|` +
		`console\.log\(|=>\s*[{(\w]|^\s*import\s.*["'];?\s*$|^\s*(?:await )?fetch\(`)
	likePython = regexp.MustCompile(`(?m)^\s*(?:async )?def \w+\(.*\).*:\s*(?:#.*)?$|^\s*print\(.*\)\s*$|` +
		`^import [\w.]+(?: as \w+)?(?:, [\w.]+)*\s*$|^from [\w.]+ import [^"']*$|` +
		`^\s*(?:if|for|while|with|elif|else|try|except)\b[^{]*:\s*(?:#.*)?$`)
)

// isForeign reports whether code looks like the other language, and not like the language it was sent as.
func (r runRendering) isForeign() bool {
	// Code that looks like both languages, or neither, proves nothing.
	typescript, python := likeTypeScript.MatchString(r.code), likePython.MatchString(r.code)
	return typescript != python && typescript == r.language.IsPython()
}

// hintLanguage returns hints for code that failed because of its language. Code can print any text, so only checked
// names of modules are taken from the output.
func (r runRendering) hintLanguage(printed string) (out []readertext.Text) {
	if r.outcome.Exit.Code == 0 {
		return nil
	}
	if !r.language.IsPython() {
		if denoParse.MatchString(printed) && r.isForeign() {
			if r.python.Version != "" {
				return []readertext.Text{readertext.NewText("The code looks like Python: " +
					"{pass \"language\": \"python\" with it|name the file " +
					"x.py, or pass --language python}.")}
			}
			return []readertext.Text{readertext.NewText("The code looks like Python, and only TypeScript runs here%WHY.",
				"%WHY", formatReason(r.python.Problem))}
		}
		return nil
	}
	if noParse.MatchString(printed) && likeTypeScript.MatchString(r.code) ||
		undefined.MatchString(printed) && r.isForeign() {
		return []readertext.Text{readertext.NewText("The code looks like TypeScript, and its language was Python" +
			"{: leave \"language\" out|}.")}
	}
	if m := noModule.FindStringSubmatch(printed); m != nil {
		switch top, _, _ := strings.Cut(m[1], "."); top {
		case "apis":
			out = append(out, readertext.NewText("Typed clients are only for TypeScript: call the API by its URL."))
		case "mcp", "stash", "parallel":
			out = append(out, explainNoServers(r.catalog))
		default:
			out = append(out, r.explainMissingModule(m[1]))
		}
	}
	if noAddress.MatchString(printed) {
		out = append(out, r.hintUnknownHosts()...)
	}
	if noName.MatchString(printed) {
		out = append(out, explainNoServers(r.catalog))
	}
	// mcp.aio is awaited correctly, so it is removed before the search for await mcp.
	if noAwait.MatchString(printed) && awaitedTool.MatchString(strings.ReplaceAll(r.code, "mcp.aio", "")) {
		out = append(out,
			readertext.NewText("mcp.x.y() is not awaited in Python, await mcp.aio.x.y() is: the call was carried out."))
	}
	if noProcess.MatchString(printed) {
		out = append(out, readertext.NewText("Code cannot start processes; threads and asyncio work."))
	}
	return out
}

// hintUnknownHosts explains that a host name has no address. Python does not name the host, so the hosts in the code
// are checked.
func (r runRendering) hintUnknownHosts() (out []readertext.Text) {
	for _, m := range urlHost.FindAllStringSubmatch(r.code, 20) {
		if host, err := hostname.Parse(m[1]); err == nil && listOtherPorts(host, r.catalog) == "" && len(out) < maxHints {
			out = append(out, explainUnknownHost(host, r.catalog))
		}
	}
	if out == nil {
		return []readertext.Text{
			readertext.NewText("A host name has no address: code reaches only the hosts of {list_apis|your APIs}."),
		}
	}
	return out
}

// explainMissingModule lists the modules that are available instead of a missing one.
func (r runRendering) explainMissingModule(module string) readertext.Text {
	if name, is := strings.CutPrefix(module, "skills."); is {
		return readertext.NewText("%WHAT", "%WHAT", explainNoSuchSkill(name+".py", r.skills))
	}
	there := "There is the standard library"
	_, pypi := sandboxapi.SplitPackages(r.catalog.Packages)
	packages := slices.Concat(pypi, r.python.Packages)
	if n := len(packages); n > 0 {
		const most = 30
		there += " and " + strings.Join(packages[:min(n, most)], ", ")
		if n > most {
			there += fmt.Sprintf(" and %d more", n-most)
		}
	}
	top, _, _ := strings.Cut(module, ".")
	return readertext.NewText("%MODULE is not installed here. %THERE. To add packages{ the user can|:} %ADD.",
		"%MODULE", top, "%THERE", there, "%ADD", r.python.Add)
}

// describePython returns the version of Python and its HTTP libraries, or "".
func describePython(p sandboxapi.Python) string {
	if p.Version == "" {
		return ""
	}
	with := ""
	if slices.Contains(p.Packages, "requests") {
		with = " with requests"
	}
	if slices.Contains(p.Packages, "httpx") {
		with += " and httpx"
	}
	return p.Version + with
}
