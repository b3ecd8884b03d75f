package catalog_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// FuzzLoad loads any text as config.json. It must not panic, must give an API or an error and never both or neither,
// must not take down the API beside it, and must show no credential in a message.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/mistakes/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			if part.Name == "acme/config.json" {
				f.Add(part.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := withFine(t, map[string]string{"acme/config.json": string(data)})
		c, problems := catalog.Load(dir, catalog.Options{Getenv: os.Getenv})
		if c.API("zz-fine") == nil && !strings.Contains(string(data), "fine") && !strings.Contains(string(data), "FINE") {
			t.Fatal("the API beside it is not loaded")
		}
		a, errs := c.API("acme"), problems.Errors()
		if (a == nil) != (len(errs) > 0) {
			t.Fatalf("API %v and %d errors:\n%s", a, len(errs), problems)
		}
		if a == nil {
			noCredentialIn(t, data, problems)
			return
		}
		if !json.Valid(data) || len(a.Hosts) == 0 && a.Server == nil || len(a.Methods.Allowed) > 0 && len(a.Methods.Restricted) > 0 {
			t.Fatalf("loaded %+v from %q", a, data)
		}
		for _, cred := range a.Credentials {
			if v := cred.Value.Reveal(); len(v) < 8 || strings.ContainsAny(v, "\r\n\x00") || len(cred.Surfaces) == 0 || !catalog.ValidTokenName(cred.Name) {
				t.Fatalf("credential %s of %d bytes on %v", cred.Name, len(v), cred.Surfaces)
			}
		}
		public, _ := json.Marshal([]any{a.Description, a.Reference, textOf(t, a.Types), a.Server})
		for _, cred := range c.AllCredentials() {
			if strings.Contains(string(public), cred.Value.Reveal()) || strings.Contains(problems.String(), cred.Value.Reveal()) {
				t.Fatalf("the credential of %s shows", cred.Name)
			}
		}
	})
}

// noCredentialIn looks for the plain credentials of a file that did not load. Values that are also words of a message
// or names of the file are not told apart, so only long ones count.
func noCredentialIn(t *testing.T, data []byte, problems catalog.Problems) {
	var file struct {
		Credentials map[string]any `json:"credentials"`
	}
	if json.Unmarshal(data, &file) != nil {
		return
	}
	for _, v := range file.Credentials {
		if s, ok := v.(string); ok && len(s) >= 20 && strings.ContainsAny(s, "0123456789") && strings.Contains(problems.String(), s) && strings.Count(string(data), s) == 1 {
			t.Fatalf("a message shows %q:\n%s", s, problems)
		}
	}
}
