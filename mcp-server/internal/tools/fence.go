package tools

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// fence matches a line that opens or closes a Markdown code block.
var fence = regexp.MustCompile("^ {0,3}```[ \t]*([\\w+#.-]*)[ \t]*$")

// fenceLanguages maps the word after an opening fence to a language.
var fenceLanguages = map[string]sandboxapi.Language{
	"ts": sandboxapi.LanguageTypeScript, "tsx": sandboxapi.LanguageTypeScript, "mts": sandboxapi.LanguageTypeScript,
	"js": sandboxapi.LanguageTypeScript, "jsx": sandboxapi.LanguageTypeScript, "mjs": sandboxapi.LanguageTypeScript,
	"javascript": sandboxapi.LanguageTypeScript, "typescript": sandboxapi.LanguageTypeScript,
	"py": sandboxapi.LanguagePython, "python": sandboxapi.LanguagePython, "python3": sandboxapi.LanguagePython,
}

// removeFence returns the code inside a Markdown fence, with its line numbers kept, and the word after the opening
// fence. Code is fenced only if its first and last lines are fences and no other line starts with one. Python rejects
// such a text, and TypeScript ends it with a TypeError at once. So removeFence never changes a program that
// works.
func removeFence(code string) (inside, tag string, fenced bool) {
	lines := strings.Split(strings.TrimRight(code, " \t\r\n"), "\n")
	first := 0
	// Empty lines before the fence do not count.
	for first < len(lines)-1 && strings.TrimSpace(lines[first]) == "" {
		first++
	}
	opening := fence.FindStringSubmatch(strings.TrimRight(lines[first], "\r"))
	last := len(lines) - 1
	// One fence alone is no block.
	if opening == nil || first == last || strings.TrimSpace(lines[last]) != "```" {
		return code, "", false
	}
	for _, line := range lines[first+1 : last] {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			return code, "", false
		}
	}
	// The fence's line stays empty, so that errors name the line numbers that the model wrote.
	lines[first] = ""
	return strings.Join(lines[:last], "\n") + "\n", opening[1], true
}

// readFenceLanguage returns the language that the word after a fence names, or "" for an empty word. An unknown word is
// a mistake, and so is a contradiction to the argument language.
func readFenceLanguage(a *argumentReader, tag string, language sandboxapi.Language) sandboxapi.Language {
	tagged := fenceLanguages[strings.ToLower(tag)]
	switch {
	case tag != "" && tagged == "":
		a.AddMistake(fmt.Sprintf("code: found a fence of %.40q, want TypeScript or Python without a fence", tag))
	case tagged != "" && language != "" && tagged != language:
		a.AddMistake(fmt.Sprintf("language: found %q for code in a fence of %q", language, tag))
	}
	return tagged
}
