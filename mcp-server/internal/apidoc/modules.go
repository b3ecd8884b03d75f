package apidoc

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	clientRoot = "/apis/"
	skillRoot  = "/skills/"
	// maxModules bounds the clients that code can import. maxSkills bounds the imported skills that are searched for
	// operations.
	maxModules = 50
	maxSkills  = 50
)

var (
	importsClient = regexp.MustCompile("[\"'`]/apis/([a-z0-9_-]{1,64})\\.ts[\"'`]")
	importsSkill  = regexp.MustCompile("[\"'`](?:/skills|\\.)/([A-Za-z0-9_-]{1,64})\\.ts[\"'`]")
	// namesOperation matches an operation in a literal of code or operations.jsonl. OData paths contain quotes: "GET
	// /users('{id}')".
	namesOperation = regexp.MustCompile(literalOperation(`"`) + "|" + literalOperation("'") + "|" + literalOperation("`"))
)

// literalOperation returns a pattern for an operation between two quotes of one kind.
func literalOperation(quote string) string {
	return quote +
		`((?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|QUERY) /(?:[^` + quote + `\s\\]|\\[` + "\"'`" + `])*)` + quote
}

// unquote removes the backslashes before quotes in a literal.
var unquote = strings.NewReplacer(`\"`, `"`, `\'`, "'", "\\`", "`")

// TypedModules returns the typed clients that code and its imported skills import, with the operations that they name.
// It reads no document if there are no imports. source returns the source of a skill, or "".
func (l *Library) TypedModules(
	ctx context.Context, cat proxyapi.Catalog, code string, source func(skill string) string,
) []sandboxapi.Module {
	text := code
	// Reading skills takes disk accesses, and most code imports none.
	if strings.Contains(code, skillRoot) {
		text += joinImportedSources(code, source)
	}
	if !strings.Contains(text, clientRoot) {
		return nil
	}
	var names []string
	for _, m := range importsClient.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) && len(names) < maxModules {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return nil
	}
	keys := findKeys(text)
	docs := l.WaitForDocuments(ctx)
	var out []sandboxapi.Module
	for _, api := range cat.APIs {
		if !slices.Contains(names, api.Name) {
			continue
		}
		table := runner.Table{Name: api.Name, Call: ClientName(api.Name), Note: api.Name + " has no list of operations, " +
			"which codeforge api add with --openapi makes: call it with fetch"}
		types := ""
		if i := slices.IndexFunc(docs, func(d *Document) bool { return d.Name == api.Name }); i >= 0 {
			tokens := convert.Each(api.Credentials, func(c proxyapi.Token) string { return c.Name })
			table, types = docs[i].ClientTable(keys, tokens)
		}
		if text, err := json.Marshal(table); err == nil {
			out = append(out, sandboxapi.Module{Name: api.Name, Table: text, Types: types})
		}
	}
	return dropOversize(out)
}

// findKeys returns the operations that code names.
func findKeys(code string) map[string]bool {
	keys := map[string]bool{}
	for _, m := range namesOperation.FindAllStringSubmatch(code, -1) {
		keys[unquote.Replace(m[1]+m[2]+m[3])] = true // only one alternative matched
	}
	return keys
}

// dropOversize drops modules that do not fit into a run: first types, then clients.
func dropOversize(all []sandboxapi.Module) []sandboxapi.Module {
	for i := range all {
		// The types are only for checking, so they go first.
		if (sandboxapi.RunRequest{Modules: all[:i+1]}).ModulesSize() > sandboxapi.MaxModules {
			all[i].Types = ""
		}
		if (sandboxapi.RunRequest{Modules: all[:i+1]}).ModulesSize() > sandboxapi.MaxModules {
			return all[:i]
		}
	}
	return all
}

// joinImportedSources returns the source of the skills that code imports, directly or through other skills.
func joinImportedSources(code string, source func(string) string) string {
	var b strings.Builder
	var seen []string
	for next := []string{code}; len(next) > 0; next = next[1:] {
		for _, m := range importsSkill.FindAllStringSubmatch(next[0], -1) {
			// Bounded, because skills may import each other without end.
			if slices.Contains(seen, m[1]) || len(seen) == maxSkills || b.Len() > sandboxapi.MaxCode {
				continue
			}
			seen = append(seen, m[1])
			text := source(m[1])
			b.WriteString("\n" + text)
			next = append(next, text)
		}
	}
	return b.String()
}
