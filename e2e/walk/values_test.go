package walk

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// valuesIntro is the introduction of docs/reference/helm-values.md.
const valuesIntro = `# Values of the Helm chart

` + "`helm install --set NAME=VALUE`" + ` changes a value. Helm refuses a name or a type that the chart does not know.
[Start on Kubernetes](../start/kubernetes.md) explains how to install the chart.

A test writes this page from ` + "`deploy/helm/codeforge/values.yaml`: `go test ./walk -run TestValues -update`" + ` in e2e/.
`

// TestValues compares docs/reference/helm-values.md with the values of the chart, their defaults and their comments.
func TestValues(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	var file yaml.Node
	if err := yaml.Unmarshal([]byte(document(t, "deploy/helm/codeforge/values.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(valuesIntro)
	top := file.Content[0].Content
	for i := 0; i < len(top); i += 2 {
		fmt.Fprintf(&b, "\n## %s\n\n", top[i].Value)
		if note := comment(top[i]); note != "" && nested(top[i+1]) {
			b.WriteString(note + "\n\n")
		}
		b.WriteString("| value | default | meaning |\n|---|---|---|\n")
		addValue(t, &b, top[i].Value, top[i], top[i+1])
	}
	same(t, "docs/reference/helm-values.md", b.String(), func(s string) string { return s })
}

// addValue adds the row of a value, or the rows of the values below it.
func addValue(t *testing.T, b *strings.Builder, path string, key, value *yaml.Node) {
	t.Helper()
	if nested(value) {
		for i := 0; i < len(value.Content); i += 2 {
			addValue(t, b, path+"."+value.Content[i].Value, value.Content[i], value.Content[i+1])
		}
		return
	}
	var standard any
	if err := value.Decode(&standard); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(standard)
	if err != nil {
		t.Fatal(err)
	}
	meaning := strings.TrimSpace(comment(key) + " " + comment(value))
	if meaning == "" {
		t.Errorf("values.yaml has no comment on %s", path)
	}
	fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", path, text, meaning)
}

// nested reports whether the page has rows for the fields of a value. A mapping in braces is one value.
func nested(value *yaml.Node) bool {
	return value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0
}

// comment is the comment above or behind a node, in one line.
func comment(n *yaml.Node) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(n.HeadComment+" "+n.LineComment, "#", "")), " ")
}
