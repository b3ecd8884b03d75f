package catalog_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"golang.org/x/tools/txtar"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const schemaFile = "../apis/config.schema.json"

func TestSchemaGolden(t *testing.T) {
	got, err := catalog.ConfigSchema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("apis/config.schema.json is not what the types say; run go test ./catalog -run TestSchemaGolden -update:\n%s", diff)
	}
}

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	data, err := catalog.ConfigSchema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
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
