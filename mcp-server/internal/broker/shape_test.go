package broker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/shape"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// shapeOf is the type of results that were seen, each to a question of its own.
func shapeOf(results ...string) string {
	l := &learned{Shape: &shape.Shape{}}
	for i, r := range results {
		if s := sample([]byte(r)); s != nil {
			l.add(fmt.Append(nil, i), s)
		}
	}
	return l.text
}

func ofText(text string) string {
	line, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
	return string(line)
}

// TestShapes: what code gets of a result is what is learned from, and no value of it is shown, also where values are keys.
// Promise: learned-shapes-have-no-values
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		results []string
		want    string
	}{
		{[]string{ofText("just words")}, "string"},
		{[]string{ofText(`{"id":7,"name":"Ann","tags":["a"],"none":null}`)}, "{ id: number; name: string; tags: string[]; none: null; }"},
		{[]string{ofText(`{"id":7}`), ofText(`{"id":"x"}`)}, "{ id: string | number; }"},
		{[]string{`{"content":[],"structuredContent":{"n":1.5,"open":true}}`}, "{ n: number; open: boolean; }"},
		{[]string{`{"content":[{"type":"text","text":"{\"x\":1}"}],"structuredContent":null}`}, "{ [key: string]: number }"},
		{[]string{ofText(`{"ann":{},"bob":{}}`)}, "{ [key: string]: {} }"},
		{[]string{ofText(`{"ann@example.com":{"age":7},"bob":{"age":8}}`)}, "{ [key: string]: { age: number; } }"},
		{[]string{ofText(`{broken`)}, "string"},
		{[]string{`{"isError":true,"content":[{"type":"text","text":"no"}]}`, `{"content":[{"type":"image","data":"AA=="}]}`, `[]`, ``}, ""},
		{[]string{ofText("{\"x\":\"" + strings.Repeat("x", maxSample) + "\"}")}, ""},
	} {
		got := shapeOf(c.results...)
		if got != c.want {
			t.Errorf("%.100s: %s, want %s", c.results, got, c.want)
		}
		for _, value := range []string{"Ann", "ann", "bob", "words"} {
			if strings.Contains(got, value) {
				t.Errorf("%.100s: %s has the value %s", c.results, got, value)
			}
		}
	}
}

// TestLearns: a tool's shape is learned from its first results, survives a restart, and is forgotten with the definition
// that it was seen of.
// Promise: learned-shapes-have-no-values
func TestLearns(t *testing.T) {
	dir := t.TempDir()
	a := hostile(t, "a", nil)
	seen := func(w *world) string {
		tools, _ := w.broker.Tools("a")
		for _, one := range tools {
			if one.Name == "echo" {
				return one.Seen
			}
		}
		return "no tool"
	}
	first := newWorldIn(t, dir, 4, a)
	for i := range 3 * maxSamples {
		first.call("/a/echo", fmt.Sprintf(`{"text":"{\"id\":%d,\"name\":\"value%d\"}"}`, i, i))
	}
	const want = "{ id: number; name: string; }"
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
	// What was kept in another form is learned anew.
	other := strings.Replace(string(kept), `"shape":{`, `"shape":{"kinds":["object"]},"was":{`, 1)
	testkit.Must(t, os.WriteFile(remembered(dir).path("a"), []byte(other), 0o600))
	third := newWorldIn(t, dir, 4, a)
	if got := seen(third); got != "" {
		t.Errorf("of another form: %s", got)
	}
	if third.call("/a/echo", `{"text":"[1]"}`); seen(third) != "number[]" {
		t.Errorf("learned %s anew", seen(third))
	}
	third.broker.Close(t.Context())
}

// TestAskedAgain: names that only answers to the same questions had are still those of one object, also after a restart.
// Promise: learned-shapes-have-no-values
func TestAskedAgain(t *testing.T) {
	l := &learned{Shape: &shape.Shape{}}
	for range 3 {
		for question, result := range map[string]string{`{"n":1}`: `{"ann":1,"bob":2}`, `{"n":2}`: `{"cyd":3}`} {
			l.add([]byte(question), sample([]byte(ofText(result))))
		}
		line, err := json.Marshal(l)
		testkit.Must(t, err)
		l = &learned{}
		testkit.Must(t, json.Unmarshal(line, l))
		if got := l.Shape.String(); got != "{ [key: string]: number }" {
			t.Errorf("%s", got)
		}
	}
	l.add([]byte(`{"n":3}`), sample([]byte(ofText(`{"ann":4,"bob":5}`))))
	if got := l.Shape.String(); !strings.Contains(got, "ann?: number") {
		t.Errorf("after another question: %s", got)
	}
}
