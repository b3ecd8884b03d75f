package walk

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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

// TestComposeRelease: the release's folder for Docker has each file that its Compose file mounts, fetches each image by the
// digest of the release, builds none, and is otherwise the Compose file of the source.
func TestComposeRelease(t *testing.T) {
	world.RunInOneMode(t, "it reads the build")
	digests, digest := "", map[string]string{}
	for i, name := range []string{"proxy", "mcp-server", "sandbox", "sandbox-net"} {
		digest[name] = "sha256:" + strings.Repeat(strconv.Itoa(i), 64)
		digests += name + " " + digest[name] + "\n"
	}
	dir := filepath.Join(t.TempDir(), "codeforge-1.2.3")
	makeRelease := func(dir, digests string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "make/compose-release.sh"), "1.2.3", "registry/codeforge", dir) //nolint:gosec // ours
		cmd.Stdin = strings.NewReader(digests)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := makeRelease(dir, digests); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	released, err := os.ReadFile(filepath.Join(dir, "docker-compose.yml"))
	testkit.Must(t, err)
	type compose struct {
		Services map[string]map[string]any
		Rest     map[string]any `yaml:",inline"`
	}
	var got, source compose
	testkit.Must(t, yaml.Unmarshal(released, &got))
	testkit.Must(t, yaml.Unmarshal([]byte(document(t, "docker-compose.yml")), &source))
	if len(got.Services) != len(source.Services) {
		t.Errorf("%d services, the source has %d", len(got.Services), len(source.Services))
	}
	for name, service := range source.Services {
		image := service["image"].(string)
		image = image[strings.Index(image, "}/")+2 : strings.LastIndex(image, ":${")]
		if want, has := "registry/codeforge/"+image+"@"+digest[image], got.Services[name]["image"]; has != want {
			t.Errorf("%s has the image %v, want %s", name, has, want)
		}
		if pull := got.Services[name]["pull_policy"]; pull != "missing" {
			t.Errorf("%s has the pull policy %v", name, pull)
		}
		for _, of := range []map[string]any{service, got.Services[name]} {
			delete(of, "image")
			delete(of, "pull_policy")
		}
		delete(service, "build")
		if !reflect.DeepEqual(got.Services[name], service) {
			t.Errorf("%s is\n%v, want\n%v", name, got.Services[name], service)
		}
	}
	for _, m := range regexp.MustCompile(`\./([a-zA-Z.][a-zA-Z./-]+)`).FindAllStringSubmatch(string(released), -1) {
		if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil {
			t.Errorf("the Compose file needs %s: %v", m[1], err)
		}
	}
	for _, m := range regexp.MustCompile(`\bmake/[a-z]+\.sh`).FindAllString(document(t, "rebuild.sh"), -1) {
		if _, err := os.Stat(filepath.Join(dir, m)); err != nil {
			t.Errorf("up.sh needs %s: %v", m, err)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "up.sh"), "--help").CombinedOutput() //nolint:gosec // ours
	if err != nil || string(out) != "usage: ./up.sh\n" {
		t.Errorf("up.sh --help: %v\n%s", err, out)
	}
	if keys, err := filepath.Glob(filepath.Join(dir, "apis/*/config.json")); err != nil || len(keys) > 0 {
		t.Errorf("the release has %v, %v", keys, err)
	}
	if out, err := makeRelease(dir+"-short", "proxy "+digest["proxy"]+"\n"); err == nil || !strings.Contains(out, "no digest of the image mcp-server") {
		t.Errorf("without three digests: %v\n%s", err, out)
	}
	if workflow := document(t, ".github/workflows/release.yml"); !strings.Contains(workflow, "make/compose-release.sh ") {
		t.Error("release.yml does not make the folder for Docker")
	}
}
