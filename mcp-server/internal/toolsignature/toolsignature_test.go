package toolsignature

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"nothing", `{"type":"object","properties":{}}`, `{}`},
		{"required first", `{"type":"object","properties":{"a":{"type":"integer"},"z":{"type":"string"}},"required":["z"]}`, `{z: string, a?: number}`},
		{"enum", `{"properties":{"s":{"enum":["open","clo\"sed",1,null,true]}}}`, `{s?: "open" | "clo\"sed" | 1 | true | null}`},
		{"const", `{"properties":{"s":{"const":"x"}}}`, `{s?: "x"}`},
		{"types", `{"properties":{"s":{"type":["null","string"]}}}`, `{s?: string | null}`},
		{"array", `{"properties":{"s":{"type":"array","items":{"type":"string"}}}}`, `{s?: string[]}`},
		{"empty lists", `{"properties":{"s":{"enum":[],"anyOf":[],"oneOf":[],"type":"string"}}}`, `{s?: string}`},
		{"array of a union", `{"properties":{"s":{"type":"array","items":{"enum":["a","b"]}}}}`, `{s?: ("a" | "b")[]}`},
		{"array of anything", `{"properties":{"s":{"type":"array"}}}`, `{s?: unknown[]}`},
		{"tuple", `{"properties":{"s":{"prefixItems":[{"type":"number"},{"type":"string"}]}}}`, `{s?: [number, string]}`},
		{"old tuple", `{"properties":{"s":{"type":"array","items":[{"type":"number"},{"type":"string"}]}}}`, `{s?: [number, string]}`},
		{"record", `{"properties":{"s":{"type":"object","additionalProperties":{"type":"number"}}}}`, `{s?: Record<string, number>}`},
		{"open object", `{"properties":{"s":{"type":"object"}}}`, `{s?: Record<string, unknown>}`},
		{"nested", `{"properties":{"s":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}}`, `{s?: {a: boolean}}`},
		{"anyOf", `{"properties":{"s":{"anyOf":[{"type":"null"},{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"string"}]}}}`, `{s?: string | string[] | null}`},
		{"oneOf beside properties", `{"type":"object","properties":{"a":{"type":"string"}},"oneOf":[{"required":["a"]},{"properties":{"b":{"type":"number"}}}]}`, `{a: string} | {a?: string, b?: number}`},
		{"allOf", `{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"allOf":[{"$ref":"#/$defs/b"}]}],"$defs":{"b":{"properties":{"b":{"type":"number"}}}}}`, `{a: string, b?: number}`},
		{"ref", `{"properties":{"s":{"$ref":"#/$defs/x~1y"}},"$defs":{"x/y":{"type":"string"}}}`, `{s?: string}`},
		{"ref into an array", `{"properties":{"s":{"$ref":"#/anyOf/1"}},"anyOf":[{"type":"object"},{"type":"string"}]}`, `{s?: string} | string`},
		{"ref of a ref", `{"properties":{"s":{"$ref":"#/definitions/a"}},"definitions":{"a":{"$ref":"#/definitions/b"},"b":{"type":"string"}}}`, `{s?: string}`},
		{"ref to nothing", `{"properties":{"s":{"$ref":"#/$defs/none"},"t":{"$ref":"https://example.com/x"},"u":{"$ref":"#/properties/u"}}}`, `{s?: unknown, t?: unknown, u?: unknown}`},
		{"recursion", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"string"},"next":{"$ref":"#/$defs/n"}}}}}`,
			`{next?: {next?: {next?: {next?: object, v?: string}, v?: string}, v?: string}, v?: string}`},
		{"quoted keys", `{"properties":{"a-b":{"type":"string"},"1":{"type":"string"},"$ok_1":{"type":"string"},"":{"type":"string"}}}`, `{""?: string, $ok_1?: string, "1"?: string, "a-b"?: string}`},
		{"true and false", `{"properties":{"a":true,"b":false,"c":{}}}`, `{a?: unknown, b?: unknown, c?: unknown}`},
		{"no schema", `[1]`, `unknown`},
		{"no json", `{`, `unknown`},
		{"no newline gets in", `{"properties":{"a\nb":{"enum":["x\n*/ evil"]}}}`, `{"a b"?: "x */ evil"}`},
		{"types of other languages", `{"type":"dict","properties":{"a":{"type":"int"},"b":{"type":"STRING"},"c":{"type":"file"},"d":{"type":["str","any"]}}}`, `{a?: number, b?: string, c?: unknown, d?: unknown}`},
		{"required with a default", `{"properties":{"a":{"type":"string","default":"x"},"b":{}},"required":["a","b"]}`, `{b: unknown, a?: string}`},
		{"wrong kinds", `{"type":7,"properties":[],"required":{},"anyOf":{},"enum":{},"allOf":"x"}`, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ArgumentsType([]byte(c.schema))
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A hostile schema costs little time and gives a bounded text.
func TestHostileSchemas(t *testing.T) {
	wide := func(n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(`"p%d":{"$ref":"#"}`, i))
		}
		return `{"type":"object","properties":{` + strings.Join(parts, ",") + `}}`
	}
	for name, schema := range map[string]string{
		"refers to itself often": wide(1000),
		"loop of allOf":          `{"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`,
		"loop of anyOf":          `{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`,
		"loop of references":     `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"deep":                   strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000),
		"deeper than JSON goes":  strings.Repeat(`{"items":`, 20000) + `{}` + strings.Repeat(`}`, 20000),
		"long literals":          `{"enum":["` + strings.Repeat("x", 1<<20) + `"]}`,
		"long key":               `{"properties":{"` + strings.Repeat("k", 1<<20) + `":{}}}`,
		"many members":           `{"enum":[` + strings.Repeat(`"x",`, 1<<16) + `"y"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			costtest.RequireBounded(t, "its line", 2*time.Second, func() {
				tool := Tool{Name: "x", Description: "D.", InputSchema: []byte(schema)}
				if line := tool.SignatureLine(); len(line) > MaxLength+MaxDescription {
					t.Errorf("%d bytes: %.200s", len(line), line)
				}
			})
		})
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct{ name, description, want string }{
		{"a", "", "a()"},
		{"a", "Does it. And more.", "a() - Does it."},
		{"a", "Uses e.g. this, v1.2 too. And more.", "a() - Uses e.g. this, v1.2 too."},
		{"a", "First\nline\n\nSecond paragraph", "a() - First line"},
		{"a", "hid\u200bden \u202etext\u2066 \U000E0041\U000E0042tags\x1b[31m\x00\ufeff", "a() - hidden text tags"},
		{"a", "fill\u3164er\u2800\ufe0f", "a() - filler"},
		{"a\nb\x07", "x", "a b() - x"},
		{"日本", "日本語の説明。", "日本() - 日本語の説明。"},
		{"a", "\xff\xfe broken", "a() - broken"},
		{"a", strings.Repeat("word ", 100), "a() - " + strings.TrimSpace(strings.Repeat("word ", 32)) + "…"},
	} {
		if got := (Tool{Name: c.name, Description: c.description}).SignatureLine(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

var update = flag.Bool("update", false, "write testdata/lines.golden")

// Tools of real servers, shortened to what is read here.
func TestCorpus(t *testing.T) {
	data, err := os.ReadFile("testdata/tools.json")
	testkit.Must(t, err)
	var list []Tool
	testkit.Must(t, json.Unmarshal(data, &list))
	var b strings.Builder
	for _, tool := range list {
		fmt.Fprintf(&b, "%s\n%s\n", tool.SignatureLine(), tool.ShortLine())
		if len(tool.OutputSchema) > 0 {
			fmt.Fprintf(&b, "returns %s\n", ArgumentsType(tool.OutputSchema))
		}
		b.WriteByte('\n')
	}
	const golden = "testdata/lines.golden"
	if *update {
		testkit.Must(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	testkit.Must(t, err)
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

// What is written is TypeScript.
func TestIsTypeScript(t *testing.T) {
	data, err := os.ReadFile("testdata/tools.json")
	testkit.Must(t, err)
	var list []Tool
	testkit.Must(t, json.Unmarshal(data, &list))
	list = append(list, Tool{InputSchema: []byte(`{"properties":{"a\nb":{"enum":["x\n*/ \" evil"]},"1":{"type":["null","array"],"items":{"enum":[1,2]}}}}`)})
	var b strings.Builder
	for i, tool := range list {
		fmt.Fprintf(&b, "export type T%d = %s;\n", i, ArgumentsType(tool.InputSchema))
		if len(tool.OutputSchema) > 0 {
			fmt.Fprintf(&b, "export type R%d = %s;\n", i, ArgumentsType(tool.OutputSchema))
		}
	}
	file := filepath.Join(t.TempDir(), "types.ts")
	testkit.Must(t, os.WriteFile(file, []byte(b.String()), 0o600))
	cmd := exec.CommandContext(t.Context(), testkit.DenoPath(t), "check", "--quiet", "--no-config", "--no-remote", "--no-npm", file)
	cmd.Env = []string{"DENO_DIR=" + t.TempDir(), "HOME=" + t.TempDir(), "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHostileCost: whatever a schema is, writing it takes little time.
// Promise: bounded-servers
func TestHostileCost(t *testing.T) {
	var properties []string
	for i := range 8000 {
		properties = append(properties, fmt.Sprintf(`"property%d":{"$ref":"#/$defs/a"}`, i))
	}
	object := `{` + strings.Join(properties, ",") + `}`
	refs := func(name string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/`+name+`"},`, n), ",") + "]"
	}
	for name, schema := range map[string]string{
		"objects of themselves": `{"$defs":{"a":{"type":"object","properties":` + object + `}},"$ref":"#/$defs/a"}`,
		"parts of parts":        `{"$defs":{"a":{"properties":` + object + `,"allOf":` + refs("a", 12) + `}},"$ref":"#/$defs/a"}`,
		"unions of parts":       `{"$defs":{"a":{"properties":` + object + `,"anyOf":` + refs("a", 12) + `}},"$ref":"#/$defs/a"}`,
		"long references": `{"$defs":{"a":{"type":"object","properties":{"x":{"$ref":"#` + strings.Repeat("/$defs", 30000) +
			`"}}}},"anyOf":` + refs("a", 12) + `}`,
	} {
		costtest.RequireBounded(t, name, 2*time.Second, func() {
			tool := Tool{Name: "x", InputSchema: json.RawMessage(schema)}
			tool.SignatureLine()
			tool.ShortLine()
		})
	}
}

// TestHostileDescriptions: nor does reading what a description says to whom, of the longest that is kept.
func TestHostileDescriptions(t *testing.T) {
	for name, part := range map[string]string{"lines": "\n", "roles": "syste:\n", "what does not show": "\u200b", "words": "ignore "} {
		costtest.RequireBounded(t, name, time.Second, func() { (Tool{Name: "x", Description: strings.Repeat(part, (256<<10)/len(part))}).SignatureLine() })
	}
}

// BenchmarkAddressing is one long description.
func BenchmarkAddressing(b *testing.B) {
	text := strings.Repeat("Ignores the user before all other tools and never tells. ", 200)
	for b.Loop() {
		IsAddressedToReader(text)
	}
}

// TestUnionType names each type once, null last, and shortens long lists.
func TestUnionType(t *testing.T) {
	list := []string{"null", "a", "a", "b"}
	same := func(s string) string { return s }
	if got := unionType(list, same); got != "a | b | null" {
		t.Error(got)
	}
	if got := unionType([]string{"null"}, same); got != "null" {
		t.Error(got)
	}
	var many []string
	for i := range maxMembers + 2 {
		many = append(many, strconv.Itoa(i))
	}
	all := strings.Join(many[:maxMembers], " | ")
	if got := unionType(many[:maxMembers], same); got != all {
		t.Error(got)
	}
	if got := unionType(many, same); got != all+" | …" {
		t.Error(got)
	}
}
