// Package negative shows that every defence is what holds its attacks: each is switched off alone, in binaries built
// with the tag disarm, and an attack of the suite must succeed then, in the suite's own judgement.
package negative

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/attack"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

const variable = "CODEFORGE_DISARM"

func TestMain(m *testing.M) {
	if os.Getenv("CODEFORGE_E2E_STAGE") == "" {
		_ = os.Setenv("CODEFORGE_E2E_TAGS", "disarm")
	}
	os.Exit(world.Main(m))
}

// control is a defence and the attacks that succeed without it.
type control struct {
	defence string
	attacks []string
}

// group is a world whose defences are off at the same time: none of them stops an attack of another.
type group struct {
	config   world.Config
	controls []control
}

// groups are one world each. What configuration switches off (default deny, methods, plain HTTP, redaction)
// is attack.TestDisarmed's.
func groups() []group {
	return []group{
		{controls: []control{
			{"host-agreement", []string{"second request on the connection names another API", ":authority of another API over HTTP/2"}},
			{"override", []string{"override header X-HTTP-Method-Override", "_method in the query"}},
			{"body-override", []string{"_method in a form to a host where DELETE alone is restricted", "_method in a chunked form"}},
			{"dialguard", []string{"name that resolves to 127.0.0.1"}},
			{"upstream-tls", []string{"upstream with a expired certificate", "upstream with a certificate for another name"}},
			{"surface", []string{"name in chat text of a query", "name of a header credential in the path"}},
			{"range", []string{"slices by Range"}},
			{"mcp-host", []string{"foreign Host", "Host of the machine's address"}},
			{"mcp-origin", []string{"foreign Origin", "Origin null"}},
		}},
		{controls: []control{
			{"strict", []string{"smuggling: bare line feeds", "smuggling: folded header", "smuggling: Content-Length and chunked"}},
			{"sink-headers", []string{"name in the header Cookie", "name in the header Referer"}},
			{"once", []string{"any-parameter credential twice", "header credential in two headers"}},
			{"scrub-headers", []string{"echo in the place location", "trailers read raw"}},
			{"forms", []string{"echo as base64-1 of HTTPBIN_TOKEN", "echo as hex-upper of HTTPBIN_TOKEN"}},
			{"codings", []string{"echo under br", "echo under zstd"}},
			{"mcp-bearer", []string{"a wrong bearer", "a part of the bearer"}},
			{"mcp-owner", []string{"another user of the machine"}},
		}},
		{controls: []control{
			{"scrub-body", []string{"echo as raw of HTTPBIN_TOKEN", "echo framed by chunk7", "OTHER_TOKEN read through httpbin.test "}},
		}},
		{config: world.Config{Interpreter: "intruder"}, controls: []control{
			{"seccomp", []string{"escaped: kernel interfaces", "escaped: sockets of other kinds"}},
			{"fence", []string{"late messages of an older lease"}},
		}},
		{config: world.Config{Interpreter: "intruder"}, controls: []control{
			{"netns", []string{"escaped: DNS outside the catalog", "escaped: TLS to a host in no API"}},
		}},
	}
}

// TestControls switches each defence off and mounts its attacks.
func TestControls(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: Docker's images are the shipped ones")
	}
	suite := map[string]attack.Attack{}
	for _, a := range attack.Suite() {
		suite[a.Name] = a
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| defence | attack | seen without it |\n|---|---|---|\n")
	for i, g := range groups() {
		t.Run(fmt.Sprint(i), func(t *testing.T) { mount(t, &b, suite, g) })
	}
	fmt.Println(b.String())
}

func mount(t *testing.T, b *strings.Builder, suite map[string]attack.Attack, g group) {
	var off []string
	for _, c := range g.controls {
		off = append(off, c.defence)
	}
	t.Setenv(variable, strings.Join(off, ","))
	w := world.Start(t, g.config)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, c := range g.controls {
		for _, name := range c.attacks {
			a, ok := suite[name]
			if !ok {
				t.Errorf("%s: no attack is named %q", c.defence, name)
				continue
			}
			o := attack.Run(ctx, w, a)
			fmt.Fprintf(b, "| %s | %s | %s |\n", c.defence, name, strings.NewReplacer("|", `\|`, "\n", " ").Replace(fmt.Sprintf("%.120s", o.Seen)))
			if o.Held {
				t.Errorf("%s is off, and %q was held: %s\n%.1500s", c.defence, name, o.Seen, o.Detail)
			}
		}
	}
}

// TestDoctor: codeforge doctor --attack sees that the check of Host is off, and says so by its exit code.
func TestDoctor(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: Docker's images are the shipped ones")
	}
	t.Setenv(variable, "mcp-host")
	w := world.Start(t, world.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, code, err := world.Tool(ctx, world.Command{
		Dir: w.Dir, Args: []string{"doctor", "--attack", "--state", w.Process.State, "--apis", filepath.Join(w.Dir, "apis")},
	})
	if err != nil || code != 1 || strings.Count(out, "NOT HELD") != 1 || !strings.Contains(out, "NOT HELD MCP endpoint: a foreign Host") {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

// TestShipped looks into the binaries that are built without the tag: nothing of the hook may be in them.
func TestShipped(t *testing.T) {
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, p := range []string{"codeforge/cmd/codeforge", "proxy/cmd/egress-proxy", "sandbox-image/cmd/sandboxd", "mcp-server/cmd/mcp-server", "mcp-server/cmd/docker-shim"} {
		path := filepath.Join(dir, filepath.Base(p))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+p) //nolint:gosec // fixed arguments
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", p, err, out)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{variable, "-tags=disarm", "host-agreement", "scrub-headers"} {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("%s has %q in it", p, word)
			}
		}
		for _, args := range [][]string{{"tool", "nm", path}, {"version", "-m", path}} {
			out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput() //nolint:gosec // fixed arguments
			if err != nil {
				t.Fatalf("go %v: %v\n%s", args, err, out)
			}
			// The linker may keep the function that is constantly false; nothing else of the package.
			if bytes.Contains(bytes.ReplaceAll(out, []byte("catalog/disarm.Off\n"), nil), []byte("disarm")) {
				t.Errorf("go %s of %s names disarm", args[0], p)
			}
		}
	}
}
