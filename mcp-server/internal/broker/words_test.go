package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func TestFind(t *testing.T) {
	var tools []*declaredTool
	for _, name := range []string{"get-sum", "get_sum", "list.items", "echo", "weird/ name"} {
		tools = append(tools, &declaredTool{Tool: toolsignature.Tool{Name: name}})
	}
	for name, want := range map[string]string{
		"get-sum": "get-sum", "get_sum": "get_sum", "list_items": "list.items", "list.items": "list.items", "weird__name": "weird/ name",
		"get.sum": `["get-sum"] or ["get_sum"]`, "ecko": `"echo"`, "nothing like it": "$tools()",
	} {
		got, f := findTool(tools, name)
		switch {
		case f == nil && got.Name != want:
			t.Errorf("%s: %s", name, got.Name)
		case f != nil && (f.code != toolNotFound || !strings.Contains(f.hint, want)):
			t.Errorf("%s: %v, %s", name, f, f.hint)
		}
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		name        string
		allow, deny []string
		want        bool
	}{
		{"a", nil, nil, true},
		{"get_x", []string{"get_*"}, nil, true},
		{"set_x", []string{"get_*"}, nil, false},
		{"get_x", []string{"get_*"}, []string{"*_x"}, false},
		{"get_x", nil, []string{"get_?"}, false},
		{"get_xy", nil, []string{"get_?"}, true},
		{"abcabc", []string{"*abc"}, nil, true},
		{"abcabd", []string{"*abc"}, nil, false},
		{"anything", []string{"*"}, nil, true},
		{"a", []string{""}, nil, false},
		{"ä", []string{"?"}, nil, true},
	} {
		if got := matchesGlobs(c.name, c.allow, c.deny); got != c.want {
			t.Errorf("%s with %v and not %v: %v", c.name, c.allow, c.deny, got)
		}
	}
	costtest.RequireBounded(t, "a hard pattern", 2*time.Second, func() {
		if mcpserver.MatchTool(strings.Repeat("*a", 200), strings.Repeat("a", 4000)+"b") {
			t.Error("a hard pattern matches")
		}
	})
}

func TestMistakes(t *testing.T) {
	const schema = `{"type":"object","required":["title"],"additionalProperties":false,"properties":{
		"title":{"type":"string"},"count":{"type":"integer"},"ratio":{"type":"number"},"state":{"enum":["open","closed"]},
		"labels":{"type":"array","items":{"type":"string"}},"who":{"$ref":"#/$defs/person"},"any":{},"maybe":{"type":["string","null"]},
		"either":{"anyOf":[{"type":"string"},{"type":"object","required":["id"]}]}},
		"$defs":{"person":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"boss":{"$ref":"#/$defs/person"}}}}}`
	for arguments, want := range map[string]string{
		`{"title":"a"}`: "",
		`{"title":"a","count":3,"ratio":1,"state":"open","labels":["x"],"who":{"name":"n"},"any":[1],"maybe":null,"either":{"id":1}}`: "",
		`{"title":"a","count":1e3,"ratio":0.5}`:      "",
		`{"title":"a","count":12345678901234567890}`: "",
		`{}`:                             "title: missing; want string",
		`{"title":1}`:                    "title: found integer, want string",
		`{"title":null}`:                 "title: found null, want string",
		`{"titel":"a","title":"a"}`:      `titel: there is no such argument; did you mean "title"?`,
		`{"title":"a","count":1.5}`:      "count: found number, want integer",
		`{"title":"a","state":"ajar"}`:   `state: found "ajar", want one of "open", "closed"`,
		`{"title":"a","labels":["x",1]}`: "labels[1]: found integer, want string",
		`{"title":"a","labels":"x"}`:     "labels: found string, want array",
		`{"title":"a","who":{"boss":{"name":"b","boss":{}}}}`: "who.name: missing; want string|who.boss.boss.name: missing; want string",
		`{"title":"a","maybe":1}`:                             "maybe: found integer, want string or null",
		`{"title":"a","either":1}`:                            "either: found integer, want string or object",
		`{"title":"a","either":{}}`:                           "either.id: missing; want a value",
	} {
		got := strings.Join(findMistakes(json.RawMessage(schema), json.RawMessage(arguments)), "|")
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", arguments, got, want)
		}
	}
}

// TestKeywords: each keyword that is checked finds its mistake, which names the value and the wanted ones.
func TestKeywords(t *testing.T) {
	for _, c := range []struct{ schema, right, wrong, want string }{
		{`{"const":"a"}`, `"a"`, `"b"`, `x: found "b", want "a"`},
		{`{"const":null}`, `null`, `1`, `x: found 1, want null`},
		{`{"enum":[1,2.5,"a"]}`, `1.0`, `3`, `x: found 3, want one of 1, 2.5, "a"`},
		{`{"additionalProperties":{"type":"number"}}`, `{"a":1}`, `{"a":"1"}`, "x.a: found string, want number"},
		{`{"anyOf":[{"type":"string"},{"type":"integer","enum":[10]}]}`, `10`, `11`, "x: found 11, want 10"},
		{`{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{"b":1}`, `{"c":1}`, "x.a: missing; want a value"},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `null`, `true`, "x: found boolean, want string or null"},
		{`{"allOf":[{"type":"integer"},{"enum":[1,2]}]}`, `2`, `3`, "x: found 3, want one of 1, 2"},
	} {
		check := func(value string) string {
			return strings.Join(findMistakes(json.RawMessage(`{"properties":{"x":`+c.schema+`}}`), json.RawMessage(`{"x":`+value+`}`)), "|")
		}
		if got := check(c.right); got != "" {
			t.Errorf("%s: %s is right: %s", c.schema, c.right, got)
		}
		if got := check(c.wrong); got != c.want {
			t.Errorf("%s: %s: %s\nwant %s", c.schema, c.wrong, got, c.want)
		}
	}
}

// TestOddSchemas: a schema that is not quite one refuses no right call.
func TestOddSchemas(t *testing.T) {
	for _, c := range []struct{ schema, arguments, want string }{
		{`{"properties":{"n":{"type":"int"}}}`, `{"n":1}`, ""},
		{`{"properties":{"n":{"type":"int"}}}`, `{"n":"1"}`, "n: found string, want integer"},
		{`{"properties":{"n":{"type":"str"}}}`, `{"n":"1"}`, ""},
		{`{"properties":{"n":{"type":"STRING"}}}`, `{"n":"1"}`, ""},
		{`{"properties":{"n":{"type":"any"}}}`, `{"n":[1]}`, ""},
		{`{"properties":{"n":{"type":"file"}}}`, `{"n":{"path":"a"}}`, ""},
		{`{"properties":{"n":{"type":["string","file"]}}}`, `{"n":1}`, ""},
		{`{"properties":{"n":{"type":["string",null]}}}`, `{"n":1}`, ""},
		{`{"type":"dict","properties":{"n":{"type":"list","items":{"type":"float"}}}}`, `{"n":[1.5]}`, ""},
		{`{"properties":{"n":{"type":"string","default":"a"},"m":{"type":"string"}},"required":["n","m"]}`, `{"m":"a"}`, ""},
		{`{"properties":{"n":{"type":"string","default":"a"},"m":{"type":"string"}},"required":["n","m"]}`, `{}`, "m: missing; want string"},
		{`{"properties":{"n":{"type":"integer","minimum":2},"s":{"pattern":"^a","maxLength":0}}}`, `{"n":1,"s":"b"}`, ""},
	} {
		if got := strings.Join(findMistakes(json.RawMessage(c.schema), json.RawMessage(c.arguments)), "|"); got != c.want {
			t.Errorf("%s: %s: %q, want %q", c.schema, c.arguments, got, c.want)
		}
	}
}

// TestMisspelt: a name that the schema does not have is a mistake if the schema has nearly the same name, and the call
// does not give that one.
func TestMisspelt(t *testing.T) {
	const names = `"properties":{"page-size":{"type":"integer"},"query":{"type":"string"},"id":{}}`
	const hint = `: there is no such argument; did you mean "page-size"?`
	for _, c := range []struct{ schema, arguments, want string }{
		{`{` + names + `}`, `{"page_size":1}`, "page_size" + hint},
		{`{` + names + `}`, `{"pageSize":1}`, "pageSize" + hint},
		{`{` + names + `}`, `{"page_size":1,"page-size":1}`, ""},
		{`{` + names + `}`, `{"ix":1,"other":1}`, ""},
		{`{` + names + `,"additionalProperties":true}`, `{"page_size":1}`, ""},
		{`{` + names + `,"additionalProperties":{}}`, `{"page_size":1}`, ""},
		{`{` + names + `,"patternProperties":{"^p":{}}}`, `{"page_size":1}`, ""},
		{`{` + names + `,"allOf":[{"properties":{"page_size":{}}}]}`, `{"page_size":1}`, ""},
		{`{"allOf":[{` + names + `},{"properties":{"page_size":{}}}]}`, `{"page_size":1}`, ""},
		{`{"properties":{"in":{"type":"object",` + names + `}}}`, `{"in":{"page_size":1}}`, "in.page_size" + hint},
	} {
		if got := strings.Join(findMistakes(json.RawMessage(c.schema), json.RawMessage(c.arguments)), "|"); got != c.want {
			t.Errorf("%s: %s: %q, want %q", c.schema, c.arguments, got, c.want)
		}
	}
}

// TestOddDefinitions: a tool is there whatever else its definition has. What it claims in an odd way it does not claim.
func TestOddDefinitions(t *testing.T) {
	for _, odd := range []string{
		`"annotations":"read-only"`, `"annotations":[]`, `"annotations":{"readOnlyHint":"yes"}`, `"annotations":{"title":7}`, `"annotations":null`,
		`"outputSchema":"text"`, `"outputSchema":null`, `"outputSchema":[]`, `"inputSchema":"text"`, `"inputSchema":null`,
		`"title":7`, `"description":["a"]`, `"icons":"x.png"`, `"icons":[7]`, `"_meta":7`, `"execution":"task"`, `"execution":{"taskSupport":7}`,
	} {
		tools := readDefinitions([]json.RawMessage{json.RawMessage(`{"name":"a",` + odd + `}`), json.RawMessage(`{"name":"b"}`), json.RawMessage(`{"name":7}`)})
		if len(tools) != 2 || tools[0].Name != "a" {
			t.Errorf("%s: %d tools", odd, len(tools))
			continue
		}
		if one := tools[0]; one.reads || one.repeatable || one.task || len(one.OutputSchema) > 0 || (&callRequest{broker: &Broker{}}).checkArguments(one, []byte(`{"x":1}`)) != nil {
			t.Errorf("%s: %+v", odd, one)
		}
	}
}

// TestLongEnum: of a list that is shown in part, what is nearest is shown, and that there is more.
func TestLongEnum(t *testing.T) {
	var all []string
	for i := range 500 {
		all = append(all, fmt.Sprintf(`"zone-%03d"`, i))
	}
	schema := `{"type":"object","properties":{"z":{"enum":[` + strings.Join(all, ",") + `]}}}`
	for _, text := range []string{"zone499", "zoe-49x9"} { // one slip, and two in eight characters
		want := `z: found "` + text + `", want one of ` + strings.Join(all[:20], ", ") + `, … (500 in all); did you mean "zone-499"?`
		if got := strings.Join(findMistakes(json.RawMessage(schema), json.RawMessage(`{"z":"`+text+`"}`)), "|"); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// TestHostileSchemas: a schema is a server's word. None takes long, fails, or makes a right call a wrong one.
// Promise: bounded-servers
func TestHostileSchemas(t *testing.T) {
	wide := strings.TrimSuffix(strings.Repeat(`{"$ref":"#"},`, 50), ",")
	for _, schema := range []string{
		``, `null`, `true`, `[]`, `"x"`, `{`, `{"$ref":"#"}`, `{"$ref":"#/a/b"}`, `{"$ref":"http://x.test/"}`, `{"$ref":1}`,
		`{"allOf":[{"$ref":"#"}]}`, `{"anyOf":[` + wide + `]}`, `{"allOf":[` + wide + `]}`, `{"allOf":[{"anyOf":[` + wide + `]},{"oneOf":[` + wide + `]}]}`,
		`{"type":7}`, `{"type":[]}`, `{"required":"a","properties":[]}`, `{"properties":{"a":true,"b":null}}`, `{"items":[{"type":"string"}]}`,
		`{"enum":[{"a":1}]}`, `{"additionalProperties":{"type":"thing"}}`,
		strings.Repeat(`{"properties":{"a":`, 500) + "{}" + strings.Repeat("}}", 500),
	} {
		costtest.RequireBounded(t, fmt.Sprintf("%.100s", schema), 2*time.Second, func() {
			if got := findMistakes(json.RawMessage(schema), json.RawMessage(`{"a":{"a":[1,"x",null]}}`)); len(got) > 0 {
				t.Errorf("%.100s: %v", schema, got)
			}
		})
	}
}

func TestStash(t *testing.T) {
	now := time.Now()
	s := stashStore{now: func() time.Time { return now }}
	do := func(session, op, key, value string, ttl int64) string {
		t.Helper()
		got, f := s.doOperation(session, op, stashRequest{Key: key, Value: json.RawMessage(value), TTL: ttl})
		if f != nil {
			return f.code
		}
		if value, ok := got.(json.RawMessage); ok {
			got = map[string]any{"value": value}
		}
		line, err := json.Marshal(got)
		if err != nil {
			t.Error(err)
		}
		return string(line)
	}
	for _, c := range []struct{ session, op, key, value, want string }{
		{"a", "keys", "", "", `{"keys":[]}`},
		{"a", "get", "k", "", `{}`},
		{"a", "set", "k", `{"x":1}`, `{}`},
		{"a", "get", "k", "", `{"value":{"x":1}}`},
		{"b", "get", "k", "", `{}`},
		{"b", "keys", "", "", `{"keys":[]}`},
		{"a", "set", "", "1", badArguments},
		{"a", "set", strings.Repeat("k", maxKey+1), "1", badArguments},
		{"a", "set", "k", "", badArguments},
		{"a", "burn", "k", "", badRequest},
		{"a", "delete", "k", "", `{}`},
		{"a", "get", "k", "", `{}`},
	} {
		if got := do(c.session, c.op, c.key, c.value, 0); got != c.want {
			t.Errorf("%s %s %.10s: %s, want %s", c.session, c.op, c.key, got, c.want)
		}
	}
	do("a", "set", "short", "1", 1000)
	do("a", "set", "long", "1", 0)
	now = now.Add(2 * time.Second)
	if got := do("a", "keys", "", "", 0); got != `{"keys":["long"]}` {
		t.Errorf("after two seconds: %s", got)
	}
	now = now.Add(stashTime)
	if got := do("a", "keys", "", "", 0); got != `{"keys":[]}` || len(s.all) != 0 {
		t.Errorf("after an hour: %s, %d stashes", got, len(s.all))
	}
	for n := range maxKeys {
		do("a", "set", fmt.Sprint(n), "1", 0)
	}
	if got := do("a", "set", "one more", "1", 0); got != stashFull {
		t.Errorf("a key too many: %s", got)
	}
	if got := do("a", "set", "1", "2", 0); got != `{}` {
		t.Errorf("a new value in a full stash: %s", got)
	}
	big := `"` + strings.Repeat("a", maxStash-1000) + `"`
	for n, want := range []string{`{}`, `{}`, `{}`, stashFull} {
		if got := do(fmt.Sprint("big", n), "set", "k", big, 0); got != want {
			t.Errorf("big %d: %s, want %s", n, got, want)
		}
	}
	if got := do("big0", "set", "k2", big, 0); got != stashFull {
		t.Errorf("too much for one session: %s", got)
	}
}

// TestStashOfMany: an operation takes no longer if other sessions have many values, because all runs wait for one lock.
// Removed and replaced values do not count.
// Promise: bounded-work
func TestStashOfMany(t *testing.T) {
	var s stashStore
	one := stashRequest{Key: "k", Value: json.RawMessage("1")}
	for n := range 800 {
		for k := range maxKeys {
			if _, f := s.doOperation(fmt.Sprint(n), "set", stashRequest{Key: fmt.Sprint(k), Value: one.Value}); f != nil {
				t.Fatal(f)
			}
		}
	}
	costtest.RequireBounded(t, "1000 operations beside 204,800 values", time.Second, func() {
		for range 250 {
			for _, op := range []string{"set", "set", "get", "delete"} {
				if _, f := s.doOperation("own", op, one); f != nil {
					t.Fatal(f)
				}
			}
		}
	})
	for n := range 800 {
		for k := range maxKeys {
			s.doOperation(fmt.Sprint(n), "delete", stashRequest{Key: fmt.Sprint(k)})
		}
	}
	if s.total != 0 || len(s.held) != 0 || len(s.all) != 0 {
		t.Errorf("%d bytes of %d owners in %d stashes count", s.total, len(s.held), len(s.all))
	}
}

// TestStashOverHTTP: runs of one session share a stash, and a run that is over has none.
func TestStashOverHTTP(t *testing.T) {
	w := newWorld(t, 1)
	post := func(run, op, body string) answer { return w.send(t.Context(), run, "POST", "/$stash/"+op, body, 0) }
	if got := post("s1-r1", "set", `{"key":"k","value":[1]}`); got.status != 200 {
		t.Errorf("%s", got.body)
	}
	if got := post("s1-r2", "get", `{"key":"k"}`); strings.TrimSpace(string(got.body)) != `{"value":[1]}` {
		t.Errorf("%s", got.body)
	}
	if got := post("s2-r1", "keys", `{}`); strings.TrimSpace(string(got.body)) != `{"keys":[]}` {
		t.Errorf("%s", got.body)
	}
	w.mu.Lock()
	w.over["s1-r2"] = true
	w.mu.Unlock()
	if got := post("s1-r2", "get", `{"key":"k"}`); got.Code != cancelled {
		t.Errorf("%s", got.body)
	}
}

func TestDenoCommand(t *testing.T) {
	api := proxyapi.API{
		Name: "x", Domains: []string{"api.x.test", "*.y.test"},
		Server: &mcpserver.Settings{Package: "npm:x@1.0.0", Args: []string{"--flag", "-A"}},
	}
	got := strings.Join(denoCommand(api, "/packages/p", "/home/100"), " ")
	want := "deno run --no-prompt --cached-only --no-config --lock=/packages/p/deno.lock --frozen --no-code-cache --allow-env --allow-sys " +
		"--allow-read=/packages/p,/home/100 --allow-write=/home/100 --allow-net=api.x.test,*.y.test npm:x@1.0.0 --flag -A"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	api.Domains = nil
	if got := strings.Join(denoCommand(api, "/p", "/h"), " "); strings.Contains(got, "--allow-net") {
		t.Errorf("without domains: %s", got)
	}
	api.Server.Permissions = []string{"run"}
	got = strings.Join(denoCommand(api, "/p", "/h"), " ")
	if want := "deno run --no-prompt --cached-only --no-config --lock=/p/deno.lock --frozen --no-code-cache --allow-all npm:x@1.0.0 --flag -A"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestMarked(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                       `{"_schema":true,"_hint":""}`,
		` {"content":[]} `:         `{"content":[],"_schema":true,"_hint":""}`,
		`{"_schema":false,"a":1 }`: `{"_schema":false,"a":1 ,"_schema":true,"_hint":""}`,
		`[]`:                       "",
		``:                         "",
	} {
		got, f := addMarkers(json.RawMessage(raw), true, "")
		if string(got) != want || (f != nil) != (want == "") {
			t.Errorf("%s: %s %v", raw, got, f)
		}
	}
}

// TestLimited: code may repeat a call that the server's limit refused.
func TestLimited(t *testing.T) {
	f := fromBridge(&bridgewire.Error{Code: bridgewire.Limited, Message: "HTTP 429"})
	if f.code != serverError || !f.retryable || f.transport || f.hint == "" {
		t.Errorf("%+v", f)
	}
}

// A call that a bridge cancels by itself, because it is being ended, is not a call that code has cancelled.
func TestCancelledByBridge(t *testing.T) {
	for _, code := range []string{bridgewire.Cancelled, bridgewire.Abandoned} {
		if f := fromBridge(&bridgewire.Error{Code: code}); f.code != serverUnavailable || !f.transport || f.unsent || f.retryable {
			t.Errorf("%s: %+v", code, f)
		}
	}
}
