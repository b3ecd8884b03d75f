package apidoc

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

var (
	unknownField = regexp.MustCompile(`^Object literal may only specify known properties, (?:but|and) ('.*') ` +
		`does not exist in type '(.*)'\.(?: Did you mean to write ('.*')\?)?$`)
	unknownOption = regexp.MustCompile(`^Argument of type '"((?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|QUERY) /.*)"' ` +
		`is not assignable to parameter of type '.*'\.$`)
	// generated matches the names of a client's generated declarations.
	generated = regexp.MustCompile(`codeforge\$(path|query|headers|body|input|answer)\$([0-9]{1,4})\$([A-Za-z0-9_]+)`)
)

// maxMistake bounds the line of one mistake, in bytes.
const maxMistake = 300

// DescribeMistake returns a mistake in one line for a model: the place, the mistake, and the correction. modules are
// the run's modules.
func (l *Library) DescribeMistake(ctx context.Context, m sandboxapi.Mistake, modules []sandboxapi.Module) string {
	lines := strings.Split(m.Text, "\n")
	text := lines[0]
	// The compiler would list all operations of the client.
	if asked := unknownOption.FindStringSubmatch(text); asked != nil {
		text = l.explainNoOperation(ctx, asked[1], modules)
	} else if last := lines[len(lines)-1]; len(lines) > 1 && last != "" {
		text = last // the innermost reason
	}
	if f := unknownField.FindStringSubmatch(text); f != nil {
		text = f[1] + " does not exist in '" + f[2] + "'."
		if f[3] != "" {
			text += " Did you mean " + f[3] + "?"
		}
	}
	// A model does not know the generated names, so they become the names of operations.
	tables := tablesOf(modules)
	text = generated.ReplaceAllStringFunc(text, func(name string) string {
		m := generated.FindStringSubmatch(name)
		n, err := strconv.Atoi(m[2])
		i := slices.IndexFunc(tables, func(t runner.Table) bool { return t.Call == m[3] })
		if err != nil || i < 0 || n >= len(tables[i].Operations) {
			return "the " + m[1]
		}
		return "the " + m[1] + " of " + tables[i].Operations[n].Key
	})
	return fmt.Sprintf("%d:%d %s", m.Line, m.Column, safetext.OneLine(cutBytes(text, maxMistake)))
}

func tablesOf(modules []sandboxapi.Module) []runner.Table {
	out := make([]runner.Table, len(modules))
	for i, m := range modules {
		_ = json.Unmarshal(m.Table, &out[i]) // this package wrote them
	}
	return out
}

// explainNoOperation rejects an unknown operation, and names the nearest one.
func (l *Library) explainNoOperation(ctx context.Context, asked string, modules []sandboxapi.Module) string {
	method, path, _ := strings.Cut(asked, " ")
	text := "'" + asked + "' is no operation of "
	for i, m := range modules {
		if i > 0 {
			text += " or "
		}
		text += m.Name
	}
	for _, d := range l.WaitForDocuments(ctx) {
		if !slices.ContainsFunc(modules, func(m sandboxapi.Module) bool { return m.Name == d.Name }) {
			continue
		}
		if near := operation.NearestKey(method, path, d.OperationCount(), d.OperationKey); near != "" {
			return text + "; nearest: " + near
		}
	}
	return text + ": list_apis with query finds one"
}
