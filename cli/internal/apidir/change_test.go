package apidir_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// folder makes apis/shop with these files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "shop"), 0o755))
	for name, text := range files {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "shop", name), []byte(text), 0o600))
	}
	return dir
}

func config(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "shop", "config.json"))
	testkit.Must(t, err)
	return string(text)
}

// TestActivate: only "active" changes, in whatever way the file is written. Of two, the one that counts.
func TestActivate(t *testing.T) {
	for before, after := range map[string]string{
		"{ \"a\":  1e400 ,\n\t\"active\" : true}": "{ \"a\":  1e400 ,\n\t\"active\" : false}",
		"{\n  \"a\": \"\\u0041<\"\n}\n":           "{\n  \"a\": \"\\u0041<\",\n  \"active\": false\n}\n",
		"{}":                                      "{\n  \"active\": false\n}",
		"{\"active\": 1, \"active\": true}":       "{\"active\": 1, \"active\": false}",
		"{\"b\": {\"active\": true}}":             "{\"b\": {\"active\": true},\n  \"active\": false}",
	} {
		dir := folder(t, map[string]string{"config.json": before})
		testkit.Must(t, apidir.SetActive(dir, "shop", false))
		if got := config(t, dir); got != after {
			t.Errorf("%s: got\n%s\nwant\n%s", before, got, after)
		}
	}
	dir := folder(t, map[string]string{"config.json": "{ // mine\n}"})
	if err := apidir.SetActive(dir, "shop", false); err == nil || config(t, dir) != "{ // mine\n}" {
		t.Errorf("%v: %s", err, config(t, dir))
	}
	for _, name := range []string{"../shop", "a/b", ".", "..", ".hidden", ""} {
		if err := apidir.SetActive(dir, name, false); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// TestRemove: what is listed is what goes; an example stays, with its folder.
func TestRemove(t *testing.T) {
	dir := folder(t, map[string]string{"config.json": "{}", "key.txt": "x", "config.json.example": "{}", "types.d.ts": "// of the example"})
	files, err := apidir.ListFiles(dir, "shop")
	testkit.Must(t, err)
	if !slices.Equal(files, []string{"config.json", "key.txt"}) {
		t.Errorf("contents %q", files)
	}
	testkit.Must(t, apidir.RemoveAPI(dir, "shop"))
	if left, err := os.ReadDir(filepath.Join(dir, "shop")); err != nil || len(left) != 2 || left[0].Name() != "config.json.example" {
		t.Errorf("left: %v, %v", left, err)
	}
	dir = folder(t, map[string]string{"config.json": "{}", "types.d.ts": "// mine"})
	testkit.Must(t, apidir.RemoveAPI(dir, "shop"))
	if _, err := os.Stat(filepath.Join(dir, "shop")); err == nil {
		t.Error("the folder is still there")
	}
}

// TestLinks: no change reaches files outside of the folder of APIs through a link.
func TestLinks(t *testing.T) {
	outside, dir := folder(t, map[string]string{"config.json": "{}", "key.txt": "x"}), t.TempDir()
	target := filepath.Join(outside, "shop")
	if err := os.Symlink(target, filepath.Join(dir, "shop")); err != nil {
		t.Skip("this system permits no links: ", err)
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "file"), 0o755))
	testkit.Must(t, os.Symlink(filepath.Join(target, "config.json"), filepath.Join(dir, "file", "config.json")))
	for _, name := range []string{"shop", "file"} {
		for verb, err := range map[string]error{
			"remove": apidir.RemoveAPI(dir, name), "switch": apidir.SetActive(dir, name, false), "update": apidir.UpdateOperations(dir, name, nil),
		} {
			if err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
				t.Errorf("%s %s: %v", verb, name, err)
			}
		}
	}
	if left, err := os.ReadDir(target); err != nil || len(left) != 2 || config(t, outside) != "{}" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestAddExample: the example's text stays, with the credential in both forms and "active" set.
func TestAddExample(t *testing.T) {
	const example = `{
  "description": "A shop", "domains": ["your-shop.shop.test"],
  "credentials": {"A_TOKEN": "put_it_here", "B_TOKEN": {"value": "put_it_here", "in": ["query:key"]},
    "C_TOKEN": {"oauth2": {"provider": "google", "client_id": "put_it_here", "client_secret": "put_it_here", "scopes": ["x"]}}},
  "active": false
}
`
	dir := folder(t, map[string]string{"config.json.example": example})
	text, credentials, err := apidir.ReadExample(dir, "shop")
	testkit.Must(t, err)
	var names []string
	for i, value := range []string{"first \"secret\"", "second-secret", "0123-id.apps.example", "third-secret"} {
		names = append(names, credentials[i].Name+credentials[i].Kind)
		credentials[i].Value = secret.New(value)
	}
	if !slices.Equal(names, []string{"A_TOKEN", "B_TOKEN", "C_TOKEN, client id", "C_TOKEN, client secret"}) {
		t.Errorf("credentials %q", names)
	}
	if blanks := apidir.ListBlanks(text); !slices.Equal(blanks, []string{"your-shop"}) {
		t.Errorf("blanks %q", blanks)
	}
	if _, err := apidir.FillBlank(text, "your-shop", `api.evil.test", "x`); err == nil {
		t.Error("a blank takes more than a label")
	}
	text, err = apidir.FillBlank(text, "your-shop", "api")
	testkit.Must(t, err)
	_, _, err = apidir.AddExample(dir, "shop", text, credentials)
	testkit.Must(t, err)
	const want = `{
  "description": "A shop", "domains": ["api.shop.test"],
  "credentials": {"A_TOKEN": "first \"secret\"", "B_TOKEN": {"value": "second-secret", "in": ["query:key"]},
    "C_TOKEN": {"oauth2": {"provider": "google", "client_id": "0123-id.apps.example", "client_secret": "third-secret", "scopes": ["x"]}}},
  "active": true
}
`
	if got := config(t, dir); got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestBoundExample keeps the rules of an example that allow reads, and refusals. It removes all others, or makes them wait
// for a person.
// Without the only rule about tools, or about requests, all would be allowed.
func TestBoundExample(t *testing.T) {
	const read, query = `{"methods":["GET"],"path":"/v1/**","then":"allow"}`, `{"methods":["POST"],"graphql":"query","then":"allow"}`
	const refuse, held = `{"path":"/v1/admin/**","then":"refuse"}`, `{"path":"/v1/keys/**","then":"approve"}`
	const write, ask = `{"methods":["POST"],"path":"/v1/refunds","then":"allow"}`, `{"methods":["POST"],"then":"approve"}`
	const tool = `{"tools":["get_*"],"then":"allow"}`
	const example = `{"restricted_methods":["DELETE"],"rules":[` + refuse + "," + held + "," + read + "," + write + "," + query + "," + ask + "]}"
	for _, c := range []struct {
		text string
		ask  bool
		want string
	}{
		{example, false, `{"restricted_methods":["DELETE"],"rules":[` + refuse + "," + strings.Replace(held, "approve", "refuse", 1) + "," + read + "," + query + "," + strings.Replace(ask, "approve", "refuse", 1) + "]}"},
		{example, true, `{"restricted_methods":[],"rules":[` + refuse + "," + held + "," + read + "," + query + "," + ask + `,{"then":"approve"}]}`},
		{`{"rules":[` + tool + `]}`, false, `{"rules":[{"tools":["get_*"],"then":"refuse"},{"methods":["GET","HEAD"],"then":"allow"}]}`},
		{`{"rules":[` + tool + "," + write + `]}`, true, `{"rules":[{"tools":["get_*"],"then":"approve"},{"then":"approve"}]}`},
		{`{"mcp":{"url":"https://a.test"}}`, false, `{"mcp":{"url":"https://a.test"},"rules":[{"tools":["*"],"then":"refuse"},{"methods":["GET","HEAD"],"then":"allow"}]}`},
		{`{"mcp":{"url":"https://a.test"},"rules":[` + read + `]}`, true, `{"mcp":{"url":"https://a.test"},"rules":[` + read + `,{"tools":["*"],"then":"approve"},{"then":"approve"}]}`},
		{`{"mcp":{"url":"https://a.test"},"rules":[` + tool + `]}`, false, `{"mcp":{"url":"https://a.test"},"rules":[{"tools":["get_*"],"then":"refuse"},{"methods":["GET","HEAD"],"then":"allow"}]}`},
		{`{"restricted_methods":["POST"]}`, false, `{"restricted_methods":["POST"],"rules":[{"methods":["GET","HEAD"],"then":"allow"}]}`},
	} {
		text, err := apidir.BoundExample([]byte(c.text), []string{"GET", "HEAD"}, c.ask)
		testkit.Must(t, err)
		var got bytes.Buffer
		testkit.Must(t, json.Compact(&got, text))
		if got.String() != c.want {
			t.Errorf("%t: got %s", c.ask, got.String())
		}
	}
}

// TestAtOnce: of two that add one API, one is told that there is one; no edit is lost to another one.
func TestAtOnce(t *testing.T) {
	for range 20 {
		dir := folder(t, map[string]string{"config.json.example": "{}"})
		var added atomic.Int32
		var all sync.WaitGroup
		for _, host := range []string{"one.example.com", "two.example.com"} {
			all.Go(func() {
				e := apidir.Entry{Name: "shop", Description: host, Domains: []string{host}}
				if _, _, err := apidir.AddAPI(dir, e); err == nil {
					added.Add(1)
				}
			})
		}
		all.Wait()
		if added.Load() != 1 {
			t.Fatalf("%d were told that it is theirs", added.Load())
		}
		all.Go(func() { testkit.Must(t, apidir.SetActive(dir, "shop", false)) })
		all.Go(func() { testkit.Must(t, apidir.SetDomains(dir, "shop", []string{"new.example.com"})) })
		all.Wait()
		if text := config(t, dir); !strings.Contains(text, `"active": false`) || !strings.Contains(text, "new.example.com") {
			t.Fatalf("an edit is lost: %s", text)
		}
	}
}
