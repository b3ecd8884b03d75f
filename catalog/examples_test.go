package catalog_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const apisDir = "../apis"

func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(apisDir + "/*/config.json.example")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d examples in apis/, %v", len(files), err)
	}
	return files
}

// TestExamplesAreNotLoaded: a fresh clone has no API.
func TestExamplesAreNotLoaded(t *testing.T) {
	dir := t.TempDir()
	for _, file := range examples(t) {
		name := filepath.Base(filepath.Dir(file))
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name+"/config.json.example", string(data))
		write(t, dir, name+"/types.d.ts", "declare const x: 1;")
	}
	if c := clean(t, dir, nil); len(c.APIs()) != 0 {
		t.Errorf("loaded: %s", names(c))
	}
}

// TestExamplesLoad does what a user does: copy the example to config.json and put a credential in. Before that, each
// placeholder is warned of.
func TestExamplesLoad(t *testing.T) {
	schema := resolvedSchema(t)
	placeholder := regexp.MustCompile(`put_your_\w+_here`)
	dir := t.TempDir()
	for i, file := range examples(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(file))
		if name == "example" { // this folder is never loaded
			name = "example-copy"
		}
		var value any
		if err := json.Unmarshal(data, &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s does not pass the schema: %v", file, err)
		}
		keyless := !strings.Contains(string(data), `"credentials"`)
		raw := writeTree(t, map[string]string{name + "/config.json": string(data), name + "/client_secret": "dummy-secret-1"})
		if _, problems := catalog.Load(raw, catalog.Options{}); len(problems.Errors()) > 0 ||
			strings.Contains(problems.String(), "a placeholder, not a credential") == keyless {
			t.Errorf("%s as it is:\n%s", file, problems)
		}
		n := 0
		filled := placeholder.ReplaceAllStringFunc(string(data), func(string) string {
			n++
			return fmt.Sprintf("dummy-0123456789-%d-%d", i, n)
		})
		if (n == 0) != keyless {
			t.Errorf("%s has no placeholder for a credential", file)
		}
		write(t, dir, name+"/config.json", filled)
		write(t, dir, name+"/client_secret", "dummy-secret-1")
		if types, err := os.ReadFile(filepath.Join(filepath.Dir(file), "types.d.ts")); err == nil {
			write(t, dir, name+"/types.d.ts", string(types))
		}
	}
	// All together: no token name and no credential twice.
	c := clean(t, dir, nil)
	if got := len(c.APIs()); got != len(examples(t)) {
		t.Errorf("%d of %d examples loaded: %s", got, len(examples(t)), names(c))
	}
	for _, a := range c.APIs() {
		if a.Server != nil && len(a.Credentials) == 0 { // a server that needs no key, and reaches nothing
			continue
		}
		hasLimit := a.Methods.Allowed != nil || a.Methods.Restricted != nil || len(a.Rules) > 0
		if a.Reference == "" || len(a.Credentials) == 0 && a.Name != "open-meteo" || !hasLimit {
			t.Errorf("%s is no good example: %+v", a.Name, a)
		}
		if a.Server == nil && a.Limits == nil && a.Name != "example-copy" && canPost(a) {
			t.Errorf("%s lets writes pass without a limit", a.Name)
		}
		for _, cred := range a.Credentials {
			// A model must be able to learn from the types how the token name is used.
			if a.Types != nil && !strings.Contains(textOf(t, a.Types), cred.Name) {
				t.Errorf("types of %s do not name %s", a.Name, cred.Name)
			}
		}
	}
	if c.API("stripe").Types == nil || c.API("github").Types == nil {
		t.Error("stripe and github have no types")
	}
}

// canPost reports whether some request with POST passes.
func canPost(a *catalog.API) bool {
	if a.Rules != nil {
		return slices.ContainsFunc(a.Rules, func(r catalog.Rule) bool { return slices.Contains(r.Methods, http.MethodPost) })
	}
	if a.Methods.Allowed != nil {
		return slices.Contains(a.Methods.Allowed, http.MethodPost)
	}
	return !slices.Contains(a.Methods.Restricted, http.MethodPost)
}

// TestNothingPrivateIsTracked: git takes the examples and leaves a user's files alone.
func TestNothingPrivateIsTracked(t *testing.T) {
	git := func(path string) bool {
		cmd := exec.CommandContext(t.Context(), "git", "-C", "..", "check-ignore", "-q", "--no-index", path)
		err := cmd.Run()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 1 {
			testkit.SkipBecause(t, fmt.Sprint("not in a git work tree: ", err))
		}
		return err == nil
	}
	for _, private := range []string{"apis/mine/config.json", "apis/mine/key.pem", "apis/mine/sub/token", "apis/stripe/config.json", "apis/mine/types.d.ts", "apis/mine/config.json~", "apis/example/config.json"} {
		if !git(private) {
			t.Errorf("%s is not ignored", private)
		}
	}
	for _, tracked := range []string{"apis/example/config.json.example", "apis/stripe/types.d.ts", "apis/config.schema.json", "apis/linear/config.json.example"} {
		if git(tracked) {
			t.Errorf("%s is ignored", tracked)
		}
	}
}
