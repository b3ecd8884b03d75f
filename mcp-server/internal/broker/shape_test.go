package broker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/signature"
)

// shapeOf is the type of results that were seen.
func shapeOf(t *testing.T, results ...string) string {
	t.Helper()
	s := &shape{}
	for _, r := range results {
		if v, ok := sample([]byte(r)); ok {
			s.add(v, 0)
		}
	}
	line, err := json.Marshal(s.schema())
	testkit.Must(t, err)
	return signature.Arguments(line)
}

func ofText(text string) string {
	line, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
	return string(line)
}

// TestShapes: the kinds of what was seen, and no value of it, also where values are keys.
func TestShapes(t *testing.T) {
	many := map[string]int{}
	for i := range 100 {
		many[strings.Repeat("k", i+1)] = i
	}
	large, _ := json.Marshal(many)
	for _, c := range []struct {
		results []string
		want    string
	}{
		{[]string{ofText("just words")}, "string"},
		{[]string{ofText(`{"id":7,"name":"Ann","tags":["a"],"none":null}`)}, "{id: number, name: string, none: null, tags: string[]}"},
		{[]string{ofText(`{"id":7}`), ofText(`{"id":"x","more":true}`)}, "{id: number | string, more?: boolean}"},
		{[]string{`{"content":[],"structuredContent":{"n":1.5}}`}, "{n: number}"},
		{[]string{ofText(`[{"a":1},{"a":2,"b":[]}]`)}, "{a: number, b?: unknown[]}[]"},
		{[]string{ofText(`{"a":{"b":{"c":{"secret":"s3cr3t"}}}}`)}, "{a: {b: {c: Record<string, unknown>}}}"},
		{[]string{ofText(`{"ann@example.com":{"age":7},"bob":{"age":8}}`)}, "Record<string, {age: number}>"},
		{[]string{ofText(`{"users":{"ann":{"n":1},"bob":{"n":1},"cyd":{"n":1},"dan":{"n":1}}}`)}, "{users: Record<string, {n: number}>}"},
		{[]string{ofText(`{"a":{"n":1}}`), ofText(`{"4711":{"n":"x"}}`)}, "Record<string, {n: number | string}>"},
		{[]string{ofText(string(large))}, "Record<string, number>"},
		{[]string{ofText(`{broken`)}, "string"},
		{[]string{`{"isError":true,"content":[{"type":"text","text":"no"}]}`, `{"content":[{"type":"image","data":"AA=="}]}`, `[]`, ``}, "unknown"},
		{[]string{ofText("{\"x\":\"" + strings.Repeat("x", maxSample) + "\"}")}, "unknown"},
	} {
		got := shapeOf(t, c.results...)
		if got != c.want {
			t.Errorf("%.100s: %s, want %s", c.results, got, c.want)
		}
		for _, value := range []string{"Ann", "ann", "bob", "4711", "s3cr3t", "words"} {
			if strings.Contains(got, value) {
				t.Errorf("%.100s: %s has the value %s", c.results, got, value)
			}
		}
	}
}

// TestLearns: a tool's shape is learned from its first results, survives a restart, and is forgotten with the definition
// that it was seen of.
func TestLearns(t *testing.T) {
	dir := t.TempDir()
	a := hostile(t, "a", nil)
	seen := func(w *world) string {
		tools, _ := w.broker.Tools("a")
		for _, one := range tools {
			if one.Name == "echo" {
				return string(one.Seen)
			}
		}
		return "no tool"
	}
	first := newWorldIn(t, dir, 4, a)
	for i := range 3 * maxSamples {
		first.call("/a/echo", fmt.Sprintf(`{"text":"{\"id\":%d,\"name\":\"value%d\"}"}`, i, i))
	}
	want := `{"properties":{"id":{"type":"integer"},"name":{"type":"string"}},"required":["id","name"],"type":"object"}`
	if got := seen(first); got != want {
		t.Errorf("learned %s", got)
	}
	if first.call("/a/echo", `{"text":"[1]"}`); seen(first) != want {
		t.Errorf("learned %s after enough results", seen(first))
	}
	first.broker.Close(t.Context())
	kept, err := os.ReadFile(remembered(dir).path("a"))
	if err != nil || strings.Contains(string(kept), "value") {
		t.Errorf("%v: %s", err, kept)
	}
	second := newWorldIn(t, dir, 4, a)
	if got := seen(second); got != want {
		t.Errorf("after a restart: %s", got)
	}
	second.broker.mu.Lock()
	for _, one := range second.broker.servers["a"].tools {
		one.digest = "another"
	}
	second.broker.mu.Unlock()
	if got := seen(second); got != "" {
		t.Errorf("of another definition: %s", got)
	}
	second.broker.Close(t.Context())
}
