package catalog_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"golang.org/x/tools/txtar"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// readSchema reads the JSON Schema of config.json, which editors use.
func readSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("../apis/config.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	r, err := readSchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSchemaNames requires the schema to describe exactly the fields that Load reads, in every object. An editor would
// otherwise mark a right field, or complete a wrong one.
func TestSchemaNames(t *testing.T) {
	root := readSchema(t)
	credential := root.Properties["credentials"].PatternProperties["^[A-Z][A-Z0-9_]{4,63}$"].OneOf[1]
	rule := root.Properties["rules"].Items
	headings, kinds := catalog.FieldNames()
	objects := map[string]*jsonschema.Schema{
		"Fields": root, "Credentials": credential, "The mcp field of config.json": root.Properties["mcp"],
		"Operations": root.Properties["operations"], "limits": root.Properties["limits"],
		"sum": root.Properties["limits"].Properties["sum"], "rule": rule,
		"condition": rule.Properties["body"].PatternProperties[".+"], "tools": root.Properties["mcp"].Properties["tools"],
		"client_cert": root.Properties["client_cert"],
		"secret":      root.Properties["client_cert"].Properties["key"].OneOf[1],
	}
	maps.Copy(headings, kinds)
	maps.Copy(headings, catalog.InnerNames())
	for kind := range kinds {
		objects[kind] = credential.Properties[kind]
	}
	for object, names := range headings {
		s := objects[object]
		if s == nil {
			t.Errorf("%s: the schema has no such object", object)
			continue
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(names)), slices.Sorted(maps.Keys(s.Properties))); diff != "" {
			t.Errorf("%s: apis/config.schema.json has other fields than Load:\n%s", object, diff)
		}
		if s.AdditionalProperties == nil {
			t.Errorf("%s: the schema accepts unknown fields", object)
		}
		for name, p := range s.Properties {
			if p.Description == "" && name != "sum" {
				t.Errorf("%s: the schema does not describe %s", object, name)
			}
		}
	}
	providers := credential.Properties["oauth2"].Properties["provider"].Enum
	for _, name := range catalog.ProviderNames() {
		if !slices.Contains(providers, any(name)) || len(providers) != len(catalog.ProviderNames()) {
			t.Errorf("apis/config.schema.json has the providers %v; want %v", providers, catalog.ProviderNames())
			break
		}
	}
}

// TestSchemaAgrees holds the schema against Load: what loads without an error must pass it, else editors would mark
// good files; and it must refuse the mistakes of form that a schema can see.
func TestSchemaAgrees(t *testing.T) {
	schema := resolvedSchema(t)
	files, _ := filepath.Glob("testdata/mistakes/*.txtar")
	refused := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var config, want string
		for _, f := range archive.Files {
			switch f.Name {
			case "acme/config.json":
				config = string(f.Data)
			case "want":
				want = string(f.Data)
			}
		}
		var value any
		if json.Unmarshal([]byte(config), &value) != nil {
			continue
		}
		bad := schema.Validate(value) != nil
		if bad {
			refused++
		}
		// A repetition is a warning here and an error to uniqueItems.
		if bad && !strings.Contains(want, "error: ") && !strings.Contains(want, "listed twice") {
			t.Errorf("%s: loads, but the schema says: %v", file, schema.Validate(value))
		}
		for _, form := range []string{"unknown field", "domains: missing", "a number; ", "an empty list; want at least"} {
			if strings.Contains(want, form) && !bad {
				t.Errorf("%s: the schema takes it", file)
			}
		}
	}
	if refused < 20 {
		t.Errorf("the schema refused %d of %d mistakes; want at least 20", refused, len(files))
	}
}
