// Package typecheck finds mistakes in the use of typed clients with the TypeScript compiler, before the code runs.
//
// Code need not be well typed to be right. So only mistakes count that the clients' types alone cause: the compiler
// must not report them if all clients have the type any. The check is not a security boundary. If the compiler is
// missing, takes too long or needs too much memory, code runs unchecked. Code can also switch the check off (//
// @ts-nocheck).
package typecheck

import (
	"cmp"
	_ "embed" // globals.d.ts
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// globals declares the globals of code besides those of the language.
//
//go:embed globals.d.ts
var globals []byte

// dir is the folder beside the code with the declarations.
const dir = "types"

// Configurations of the compiler: with the clients' types, and with the type any for all clients.
const (
	typed   = dir + "/typed.json"
	untyped = dir + "/untyped.json"
)

// needsCheck reports whether a run should be checked.
func needsCheck(modules []sandboxapi.Module) bool {
	return slices.ContainsFunc(modules, func(m sandboxapi.Module) bool { return m.Types != "" })
}

// compilerFiles returns the files that the compiler reads besides the code, by name.
func compilerFiles(modules []sandboxapi.Module) map[string][]byte {
	out := map[string][]byte{
		dir + "/globals.d.ts": globals,
		dir + "/any.d.ts":     []byte(`declare module "/apis/*";` + "\n"),
		typed:                 compilerConfig(map[string][]string{"/apis/*.ts": {"./api-*.d.ts"}}, "globals.d.ts"),
		untyped:               compilerConfig(nil, "globals.d.ts", "any.d.ts"),
	}
	for _, m := range modules {
		text := cmp.Or(m.Types, "declare const api: any;\nexport = api;\n")
		out[dir+"/api-"+m.Name+".d.ts"] = []byte(text)
	}
	return out
}

// compilerConfig returns a configuration. It is lenient, because an API's responses differ from its document.
func compilerConfig(paths map[string][]string, declarations ...string) []byte {
	options := map[string]any{
		"target": "esnext", "module": "esnext", "moduleResolution": "bundler", "allowImportingTsExtensions": true,
		"moduleDetection": "force", "noEmit": true, "strict": false, "lib": []string{"esnext"}, "types": []string{},
		"skipLibCheck": true, "allowJs": false, "noErrorTruncation": false,
	}
	if paths != nil {
		options["paths"] = paths
	}
	text, _ := json.Marshal(map[string]any{ // only strings and booleans
		"compilerOptions": options, "files": append([]string{"../main.ts"}, declarations...),
	})
	return text
}

// found matches one line of the compiler about the code. Lines that explain it may follow.
var found = regexp.MustCompile(`^main\.ts\(([0-9]{1,7}),([0-9]{1,7})\): error TS([0-9]{1,5}): (.*)$`)

const (
	maxFound = 500 // bounds the mistakes that are parsed
	maxText  = 2000
)

func parseOutput(out string) []sandboxapi.Mistake {
	var all []sandboxapi.Mistake
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if m := found.FindStringSubmatch(line); m != nil {
			if len(all) == maxFound {
				break
			}
			var n [3]int
			for i := range n { // only digits
				n[i], _ = strconv.Atoi(m[i+1]) // digits alone
			}
			all = append(all, sandboxapi.Mistake{Line: n[0], Column: n[1], Code: n[2], Text: cutMessage(m[4])})
			continue
		}
		if last := len(all) - 1; last >= 0 && strings.HasPrefix(line, "  ") {
			all[last].Text = cutMessage(all[last].Text + "\n" + strings.TrimSpace(line))
		}
	}
	return all
}

func cutMessage(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }

// wrong are the compiler's numbers of certain mistakes: a value or property that the type lacks, a missing argument, a
// comparison that is never true, a missing export, a loop over a value that is not a list.
var wrong = []int{
	2322, 2345, 2353, 2561, 2339, 2551, 2554, 2555, 2741, 2739, 2740, 2559, 2820, 2819, 2367, 2678, 2305, 2724, 2349,
	2488, 2504, 2769, 2416, 2460, 2461, 2549,
}

// filterRefused returns the mistakes that keep code from running. types are the declarations that revealed them.
func filterRefused(mistakes []sandboxapi.Mistake, types []sandboxapi.Module) []sandboxapi.Mistake {
	return slices.DeleteFunc(mistakes, func(m sandboxapi.Mistake) bool {
		return !slices.Contains(wrong, m.Code) || isLenient(m, types)
	})
}

var (
	// whole matches a request body that the code passes whole.
	whole = regexp.MustCompile(
		`Type '(?:FormData|URLSearchParams|Blob|File|ReadableStream|ArrayBuffer|Uint8Array(?:<.*>)?)' `)
	assigned = regexp.MustCompile(`^(?:Argument of type|Type) '(.+)' is not assignable to (?:parameter of )?type '(.+)'\.`)
	absent   = regexp.MustCompile(`^Property '.*' does not exist on type '(.+)'\.`)
)

// isLenient reports whether code with a mistake may still be right.
func isLenient(m sandboxapi.Mistake, types []sandboxapi.Module) bool {
	lines := strings.Split(m.Text, "\n")
	switch m.Code {
	case 2339, 2551: // one of several types has the property, or the type is unknown
		if len(lines) > 1 {
			return true
		}
		on := absent.FindStringSubmatch(lines[0])
		return on != nil && slices.Contains([]string{"{}", "object", "never", "unknown", "Object"}, on[1])
	case 2305, 2724: // an export: a client's type lists all of them
		return false
	}
	if whole.MatchString(lines[len(lines)-1]) {
		return true
	}
	last := assigned.FindStringSubmatch(lines[len(lines)-1])
	if last == nil {
		return false
	}
	switch from, to := last[1], last[2]; from {
	case "string", "number", "boolean": // the compiler does not know the value, which may be an allowed one
		return hasLiterals(from, to, types)
	case "Date": // JSON stores it as a string
		return to == "string" || strings.Contains(to, "string |") || strings.Contains(to, "| string")
	case "string[]", "number[]":
		return strings.HasPrefix(to, "[") || hasLiterals(strings.TrimSuffix(from, "[]"), strings.TrimSuffix(to, "[]"), types)
	case "{}":
		return true // built field by field
	}
	return false
}

// literal matches, per kind, single values in a type as the compiler writes it.
var literal = map[string]*regexp.Regexp{
	"string":  regexp.MustCompile("[\"`]"),
	"number":  regexp.MustCompile(`(^|[ (|])-?[0-9]`),
	"boolean": regexp.MustCompile(`\b(true|false)\b`),
}

// hasLiterals reports whether a type allows single values of a kind: a union with some of them, or its name.
func hasLiterals(kind, ts string, types []sandboxapi.Module) bool {
	for _, m := range types {
		if _, after, ok := strings.Cut(m.Types, "\ntype "+ts+" = "); ok {
			ts, _, _ = strings.Cut(after, "\n")
			break
		}
	}
	return !strings.HasPrefix(ts, "{") && literal[kind].MatchString(ts)
}

// subtractMistakes returns the mistakes that are not in another list at the same place.
func subtractMistakes(mistakes, others []sandboxapi.Mistake) []sandboxapi.Mistake {
	return slices.DeleteFunc(mistakes, func(m sandboxapi.Mistake) bool {
		return slices.ContainsFunc(others, func(o sandboxapi.Mistake) bool {
			return o.Line == m.Line && o.Column == m.Column && o.Code == m.Code
		})
	})
}
