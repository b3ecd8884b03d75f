package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	var root any
	const text = `{"title": "root", "$defs": {"a": {"title": "a"}, "b": {"$ref": "#/$defs/a"}, "x/y~z": {"title": "odd"},
		"": {"title": "empty"}, "loop": {"$ref": "#/$defs/loop"}, "list": [{"title": "first"}], "true": true}}`
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		"#": "root", "#/$defs/a": "a", "#/$defs/b": "a", "#/$defs/x~1y~0z": "odd", "#/$defs/": "empty", "#/$defs/list/0": "first",
		"#/$defs/loop": "", "#/$defs/none": "", "#/$defs/list/1": "", "#/$defs/list/-1": "", "#/$defs/list/x": "", "#/$defs/true": "",
		"#/$defs/true/a": "", "#anchor": "", "other.json": "", "http://x.test/#/$defs/a": "", "": "",
	} {
		got, ok := ResolveRefs(root, map[string]any{"$ref": ref}, func(int) bool { return true })
		if title := fmt.Sprint(got["title"]); ok != (want != "") || ok && title != want {
			t.Errorf("%q: %v, %v", ref, got, ok)
		}
	}
	if _, ok := ResolveRefs(root, "no schema", nil); ok {
		t.Error("a text is a schema")
	}
}

// TestSpend: the steps of every reference are counted before they are taken.
func TestSpend(t *testing.T) {
	root := map[string]any{"a": map[string]any{"$ref": "#/b/c"}, "b": map[string]any{"c": map[string]any{}}}
	taken := 0
	within := func(most int) bool {
		taken = 0
		_, ok := ResolveRefs(root, map[string]any{"$ref": "#/a"}, func(n int) bool { taken += n; return taken <= most })
		return ok
	}
	if !within(5) || taken != 5 || within(4) || within(1) {
		t.Errorf("%d steps", taken)
	}
}

func TestAllowedTypes(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "Str"}`: "[string]", `{"type": ["int", "null"]}`: "[integer null]", `{}`: "[]", `{"type": "file"}`: "[]", `{"type": ["string", "any"]}`: "[]",
		`{"type": ["string", 1]}`: "[]", `{"type": []}`: "[]",
		`{"type": [` + strings.Repeat(`"null",`, 19) + `"null"]}`: "[" + strings.Repeat("null ", 19) + "null]",
		`{"type": [` + strings.Repeat(`"null",`, 20) + `"null"]}`: "[]",
	} {
		var s map[string]any
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(AllowedTypes(s)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestRequiredNames: a property with a default may be omitted, and one that is not described may not.
func TestRequiredNames(t *testing.T) {
	var s map[string]any
	const text = `{"required": ["a", "b", 3, "c"], "properties": {"a": {"type": "string"}, "b": {"default": null}, "d": {}, "": {"default": 1}}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(RequiredNames(s)); got != "[a c]" {
		t.Error(got)
	}
}
