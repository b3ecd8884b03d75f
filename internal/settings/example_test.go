package settings

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// outside are the variables behind those of the list: what Compose reads, in the order of .env.example, and the paths
// of Deno and Python.
const outside = "SANDBOX_MEMORY_TOTAL SANDBOX_PYTHON_PACKAGES CODEFORGE_APIS CODEFORGE_IMAGES CODEFORGE_TAG " +
	"CODEFORGE_PULL DOCKER_SOCK DENO_PATH PYTHON_PATH"

// expansion is a variable in a Compose file, with its default. Those of Dockerfiles are not settings.
var expansion = regexp.MustCompile(`\$\{([A-Z][A-Z_]*)(?::-([^}]*))?`)

// TestEnvExample holds .env.example: every variable in the order of the list, then those outside of it, each with its
// default, commented out or not; and the file is one that ReadFile and Parse take. Compose reads no other variables,
// and has the same defaults.
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
	if wrong := ListMisspelt(vars); len(wrong) > 0 {
		t.Errorf("taken for misspelt: %v", wrong)
	}
	defaults := composeDefaults(t)
	var order []string
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "#"), "=")
		if !ok || !isValidName(name) {
			continue
		}
		order = append(order, name)
		value, _, _ = strings.Cut(value, " #")
		want := DefaultOf(name)
		if !slices.Contains(ListNames(), name) {
			want = defaults[name]
		}
		if value = strings.TrimSpace(value); name != "USER_AGENT" && value != want {
			t.Errorf("%s=%s; the default is %q", name, value, want)
		}
	}
	if got, want := strings.Join(order, " "), strings.Join(ListNames(), " ")+" "+outside; got != want {
		t.Errorf(".env.example has\n%s\nwant\n%s", got, want)
	}
	for name, value := range defaults {
		switch {
		case slices.Contains(removed, name): // the service named settings refuses it
		case name == "CODEFORGE_VERSION", strings.HasPrefix(name, "COMPOSE_"): // set by rebuild.sh, and by Compose
		case !slices.Contains(order, name):
			t.Errorf("a Compose file reads %s, which .env.example does not have", name)
		case slices.Contains(ListNames(), name) && value != "" && value != DefaultOf(name) && name != "SANDBOX_PROGRAMS" && name != "UPSTREAM_CA_FILE" && !strings.HasSuffix(name, "_FILE"):
			t.Errorf("a Compose file has %s=%s; the default is %q", name, value, DefaultOf(name))
		}
	}
}

// composeDefaults are the variables that the Compose files read, with their defaults.
func composeDefaults(t *testing.T) map[string]string {
	t.Helper()
	defaults := map[string]string{}
	for _, file := range []string{"../../docker-compose.yml", "../../docker-compose.nosocket.yml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range expansion.FindAllStringSubmatch(string(data), -1) {
			if defaults[m[1]] == "" {
				defaults[m[1]] = m[2]
			}
		}
	}
	return defaults
}

// TestImagesAreBuiltHere: Docker fetches no image of a service unless .env says so. The names that they have here mean
// somebody else's on a public registry.
// Promise: foreign-images
func TestImagesAreBuiltHere(t *testing.T) {
	data, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image string `yaml:"image"`
			Pull  string `yaml:"pull_policy"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil || len(file.Services) == 0 {
		t.Fatal(file, err)
	}
	for name, s := range file.Services {
		if !strings.HasPrefix(s.Image, "${CODEFORGE_IMAGES:-codeforge}/") || s.Pull != "${CODEFORGE_PULL:-never}" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestComposeChecks: the service that checks the settings in Docker gets all of them, except a path of the host, which
// it does not see. Of SANDBOX_PROGRAMS it sees how it is written.
func TestComposeChecks(t *testing.T) {
	data, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, service, _ := strings.Cut(string(data), "\n  settings:\n")
	service, _, _ = strings.Cut(service, "\n\n")
	for _, name := range ListNames() {
		if name != "UPSTREAM_CA_FILE" && !strings.Contains(service, "\n      "+name+": ${"+name+":") {
			t.Errorf("the service named settings does not get %s", name)
		}
	}
}

// TestComposeSettingsArrive: what the service named settings checks also gets to a service that uses it.
// Promise: ledger-before-sending
func TestComposeSettingsArrive(t *testing.T) {
	services := composeServices(t, "../../docker-compose.yml")
	used := map[string]bool{}
	for name, s := range services {
		for variable := range s.Environment {
			used[variable] = used[variable] || name != "settings"
		}
	}
	for variable := range services["settings"].Environment {
		if !used[variable] && variable != "SANDBOX_PROGRAMS" && !slices.Contains(removed, variable) { // a mount
			t.Errorf("%s is checked, and no service gets it", variable)
		}
	}
	for _, variable := range []string{"AUDIT", "AUDIT_KEEP", "AUDIT_SIZE", "AUDIT_ANCHOR"} {
		if _, ok := services["proxy"].Environment[variable]; !ok {
			t.Errorf("the proxy, which keeps the ledger, does not get %s", variable)
		}
	}
}

// TestNoSocketIsTheSame: without the Docker socket, mcp-server and the sandbox have the same options and folders as with it.
func TestNoSocketIsTheSame(t *testing.T) {
	with, without := composeServices(t, "../../docker-compose.yml"), composeServices(t, "../../docker-compose.nosocket.yml")
	same := func(list []any) string {
		var kept []string
		for _, v := range list {
			if text := fmt.Sprint(v); !regexp.MustCompile("^(--sandbox=|/run/sandboxd:|run-shim:|run-sandbox:)").MatchString(text) {
				kept = append(kept, text)
			}
		}
		return strings.Join(kept, "\n")
	}
	for name, of := range map[string][2][]any{
		"mcp-server's command": {with["mcp-server"].Command, without["mcp-server"].Command},
		"mcp-server's volumes": {with["mcp-server"].Volumes, without["mcp-server"].Volumes},
		"the sandbox's tmpfs":  {with["sandbox"].Tmpfs, without["sandbox"].Tmpfs},
	} {
		if a, b := same(of[0]), same(of[1]); a == "" || a != b {
			t.Errorf("%s:\n%s\nwithout the socket:\n%s", name, a, b)
		}
	}
}

// composeService is what the tests compare of a service. Volumes may be texts or maps.
type composeService struct {
	Command, Tmpfs, Volumes []any
	Environment             map[string]any
}

// composeServices are the services of a Compose file.
func composeServices(t *testing.T, file string) map[string]composeService {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct{ Services map[string]composeService }
	if err := yaml.Unmarshal(data, &parsed); err != nil || len(parsed.Services) == 0 {
		t.Fatal(parsed, err)
	}
	return parsed.Services
}
