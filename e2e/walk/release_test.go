package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRelease checks that a release contains what a build does: every binary of the Makefile from the same folder,
// every image of docker-compose.yml, and only files that exist.
func TestRelease(t *testing.T) {
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
