package walk

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestRelease checks that a release contains what a build does: every binary of the Makefile from the same folder,
// every image of docker-compose.yml, and only files that exist.
func TestRelease(t *testing.T) {
	world.RunInOneMode(t, "it reads the build")
	goreleaser, workflow := document(t, ".goreleaser.yaml"), document(t, ".github/workflows/release.yml")
	binaries := regexp.MustCompile(`(?m)^([a-z-]+)_DIR +:= ([a-z-]+)/(\S+)$`).FindAllStringSubmatch(document(t, "Makefile"), -1)
	if len(binaries) != 6 {
		t.Errorf("the Makefile has %d binaries: is this test up to date?", len(binaries))
	}
	for _, b := range binaries {
		if want := "main: ./" + b[2] + "/" + b[3] + "\n    binary: " + b[1] + "\n"; !strings.Contains(goreleaser, want) {
			t.Errorf(".goreleaser.yaml does not build %s:\n%s", b[1], want)
		}
	}
	images := map[string]bool{}
	for _, m := range regexp.MustCompile(`CODEFORGE_IMAGES:-codeforge}/([a-z-]+):`).FindAllStringSubmatch(document(t, "docker-compose.yml"), -1) {
		images[m[1]] = true
		if !strings.Contains(workflow, "{image: "+m[1]+", ") {
			t.Errorf("release.yml does not build the image %s", m[1])
		}
	}
	if n := strings.Count(workflow, "{image: "); n != len(images) {
		t.Errorf("release.yml builds %d images, docker-compose.yml has %d", n, len(images))
	}
	for _, m := range regexp.MustCompile(`(?m)^      - ([A-Za-z.].*)$`).FindAllStringSubmatch(goreleaser, -1) {
		if strings.Contains(m[1], ":") {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root(t), m[1])); err != nil || len(found) == 0 {
			t.Errorf(".goreleaser.yaml packs %s, which is not there", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`file: (\S+?)[,}]`).FindAllStringSubmatch(workflow, -1) {
		if _, err := os.Stat(filepath.Join(root(t), m[1])); err != nil {
			t.Error(err)
		}
	}
}

// TestCask: what Homebrew installs is in the archive, below the folder that a GoReleaser since 2.18 takes it out of.
func TestCask(t *testing.T) {
	world.RunInOneMode(t, "it reads the build")
	var conf struct {
		Archives []struct {
			Wrap  bool `yaml:"wrap_in_directory"`
			Files []any
		}
		Casks []struct {
			Binaries, Manpages []string
			Completions        map[string]string
		} `yaml:"homebrew_casks"`
		Builds []struct{ Binary string }
	}
	testkit.Must(t, yaml.Unmarshal([]byte(document(t, ".goreleaser.yaml")), &conf))
	var packed []string // beside binaries
	for _, f := range conf.Archives[0].Files {
		if f, ok := f.(map[string]any); ok && f["strip_parent"] == true {
			packed = append(packed, f["dst"].(string)+"/"+filepath.Base(f["src"].(string)))
		}
	}
	made := document(t, "make/release.sh")
	for _, c := range conf.Casks {
		if len(c.Binaries) != 1 || c.Binaries[0] != conf.Builds[0].Binary || len(c.Manpages) != 1 || len(c.Completions) != 3 {
			t.Errorf("the cask installs %v %v %v", c.Binaries, c.Manpages, c.Completions)
		}
		for _, path := range append(slices.Collect(maps.Values(c.Completions)), c.Manpages...) {
			is := slices.ContainsFunc(packed, func(of string) bool {
				match, _ := filepath.Match(of, path)
				return match
			})
			if !is || !strings.Contains(made, `>"$dir/`+path+`"`) {
				t.Errorf("the cask installs %s, which no archive has: %v", path, packed)
			}
		}
	}
	workflow := document(t, ".github/workflows/release.yml")
	m := regexp.MustCompile(`version: "~> v2\.(\d+)"`).FindStringSubmatch(workflow)
	if m == nil {
		m = []string{"", "0"}
	}
	if n, err := strconv.Atoi(m[1]); conf.Archives[0].Wrap && (err != nil || n < 18) {
		t.Error("release.yml allows a GoReleaser before 2.18, which leaves the manual and completions in the archive's folder")
	}
}
