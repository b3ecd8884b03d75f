// Package promises checks that each promise has tests and a control, and that files which documents name exist.
package promises

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// place matches a row of the table "Where does it live": a question and its file.
var place = regexp.MustCompile("(?m)^\\| ([^|`]*(?:`[^`]*`[^|`]*)*\\?) \\| `([^`]+)` \\|$")

// TestPlaces checks that each question of where-does-it-live.md, at least twenty, names one file, and that it exists.
func TestPlaces(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "contribute", "where-does-it-live.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := string(text)
	all := strings.Count(section, "\n| ") - 1 // the first one is the heading
	rows := place.FindAllStringSubmatch(section, -1)
	if len(rows) != all || all < 20 {
		t.Errorf("%d of %d rows are a question and a file, want all, and at least 20", len(rows), all)
	}
	files := map[string]bool{}
	for _, row := range rows {
		question, file := row[1], row[2]
		if files[file] {
			t.Errorf("%s answers two questions", file)
		}
		files[file] = true
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s %s: no such file", question, file)
		}
	}
}

// TestTiers checks that docs/architecture.md gives each package one tier, and that the fifteen files to read exist.
func TestTiers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Tiers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	files := regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)`$").FindAllStringSubmatch(section, -1)
	if len(files) != 15 {
		t.Errorf("%d files to read, want 15", len(files))
	}
	for _, f := range files {
		if info, err := os.Stat(filepath.Join(root, f[1])); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: no such file", f[1])
		}
	}
	tiers := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (?:core|feature|periphery) \|(.*)\|$`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			tiers[name[1]]++
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		name := strings.TrimPrefix(path, "github.com/codeforge-mcp/codeforge/")
		if tiers[name] != 1 {
			t.Errorf("%s has %d tiers, want one", name, tiers[name])
		}
		delete(tiers, name)
	}
	for name := range tiers {
		t.Errorf("%s is not a package", name)
	}
}

// TestDockerfilesShareStages: the stages that the images' Dockerfiles share are identical, so Docker builds them once.
func TestDockerfilesShareStages(t *testing.T) {
	shared := regexp.MustCompile(`(?s)# The stages modules and build.*?\n\n.*?\n\n`)
	var first string
	for _, dir := range []string{"proxy", "mcp-server", "sandbox-image"} {
		text, err := os.ReadFile(filepath.Join(root, dir, "Dockerfile"))
		if err != nil {
			t.Fatal(err)
		}
		stages := shared.FindString(string(text))
		if first == "" {
			first = stages
		}
		if !strings.Contains(stages, "./proxy/cmd/egress-proxy") || stages != first {
			t.Errorf("%s/Dockerfile:\n%s\nproxy/Dockerfile:\n%s", dir, stages, first)
		}
	}
}

// TestDenoIsPinnedOnce compares the Dockerfile's Deno with the pin.
func TestDenoIsPinnedOnce(t *testing.T) {
	pins, err := os.ReadFile(filepath.Join(root, "sandbox-image", "deno.version"))
	if err != nil {
		t.Fatal(err)
	}
	pin := regexp.MustCompile(`(?m)^version (\S+)$`).FindSubmatch(pins)
	if pin == nil {
		t.Fatal("no version in deno.version")
	}
	docker, err := os.ReadFile(filepath.Join(root, "sandbox-image", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`DENO_VERSION=(\S+)`).FindAllSubmatch(docker, -1)
	if named == nil {
		t.Error("the Dockerfile pins no DENO_VERSION")
	}
	for _, m := range named {
		if string(m[1]) != string(pin[1]) {
			t.Errorf("the Dockerfile has Deno %s, deno.version has %s", m[1], pin[1])
		}
	}
}

// TestResolverOptions: code asks its resolver as often in every mode. A question that is asked once is lost with one
// datagram: docker.TestLostDatagram shows it for Docker.
func TestResolverOptions(t *testing.T) {
	for file, want := range map[string]string{
		"sandbox-image/resolv.conf":                    "options attempts:5 timeout:1\n",
		"sandbox-image/internal/jail/embedded.go":      `options attempts:5 timeout:1\n`,
		"deploy/helm/codeforge/templates/sandbox.yaml": "options attempts:5 timeout:1\n",
		"deploy/helm/codeforge/templates/shared.yaml":  `options: [{name: attempts, value: "5"}, {name: timeout, value: "1"}]`,
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v; want %s", file, err, want)
		}
	}
}
