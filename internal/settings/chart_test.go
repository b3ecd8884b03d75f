package settings_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestChartValues: helm refuses values of another type or with a misspelt name before anything is installed, because the
// chart has a schema. The chart's own values fit it.
func TestChartValues(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	chart := filepath.Join(root, "deploy/helm/codeforge")
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	testkit.Must(t, err)
	var schema jsonschema.Schema
	testkit.Must(t, json.Unmarshal(text, &schema))
	resolved, err := schema.Resolve(nil)
	testkit.Must(t, err)
	own, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	testkit.Must(t, err)
	check := func(values string) error {
		var v any
		testkit.Must(t, yaml.Unmarshal([]byte(values), &v))
		text, err := json.Marshal(v)
		testkit.Must(t, err)
		testkit.Must(t, json.Unmarshal(text, &v))
		return resolved.Validate(v)
	}
	if err := check(string(own)); err != nil {
		t.Errorf("the chart's own values: %v", err)
	}
	for name, change := range map[string][2]string{
		"slots that are no number": {"slots: 8", "slots: abc"}, "no slots": {"slots: 8", "slots: 0"}, "a misspelt name": {"slots: 8", "slot: 8"},
		"memory": {"memory: 1g", "memory: much"}, "a port": {"port: 8080", "port: http"}, "a subnet": {"subnet: 10.77.0", "subnet: 10.77.0.0/24"},
		"a switch": {"readOnly: false", "readOnly: maybe"}, "a database": {`caConfigMap: ""`, `caCert: ""`},
	} {
		values := strings.Replace(string(own), change[0], change[1], 1)
		if values == string(own) {
			t.Fatalf("%s: the values have no %q", name, change[0])
		}
		if check(values) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
