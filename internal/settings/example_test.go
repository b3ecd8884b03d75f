package settings

import (
	"os"
	"strings"
	"testing"
)

// TestEnvExample holds .env.example: every variable in the order of the list, each with its default, commented out or
// not; and the file is one that ReadFile and Parse take.
func TestEnvExample(t *testing.T) {
	const file = "../../.env.example"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	vars, err := ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(env(vars)); err != nil {
		t.Error(err)
	}
	var order []string
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "#"), "=")
		if !ok || !validName(name) {
			continue
		}
		order = append(order, name)
		value, _, _ = strings.Cut(value, " #")
		if value = strings.TrimSpace(value); name != "USER_AGENT" && value != Default(name) {
			t.Errorf("%s=%s; the default is %q", name, value, Default(name))
		}
	}
	if got, want := strings.Join(order, " "), strings.Join(Names(), " "); got != want {
		t.Errorf(".env.example has\n%s\nwant\n%s", got, want)
	}
}
