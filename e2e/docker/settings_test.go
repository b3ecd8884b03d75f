package docker

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestWrongSetting: nothing starts with a setting that is wrong, and the log of the service named settings says which.
func TestWrongSetting(t *testing.T) {
	out, err := stack.ComposeWith(t.Context(), []string{"TIMEOUT_DEFAULT=soon"}, "run", "--rm", "--no-deps", "settings")
	if err == nil || !strings.Contains(out, `TIMEOUT_DEFAULT: "soon"; want seconds`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := stack.Compose(t.Context(), "run", "--rm", "--no-deps", "settings"); err != nil {
		t.Errorf("the stack's own settings: %v: %s", err, out)
	}
	// Compose does not start a service before those it depends on.
	text, err := stack.Compose(t.Context(), "config", "--format", "json")
	if err != nil {
		t.Fatal(err, text)
	}
	var conf struct {
		Services map[string]struct {
			DependsOn map[string]struct{ Condition string } `json:"depends_on"`
		}
	}
	if err := json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &conf); err != nil {
		t.Fatal(err)
	}
	for _, service := range services {
		needs := conf.Services[service].DependsOn
		if needs["settings"].Condition != "service_completed_successfully" && needs["proxy"].Condition != "service_healthy" { // which depends on it
			t.Errorf("%s starts before the settings are checked: it depends on %v", service, needs)
		}
	}
}

// TestCannotStart: a container whose daemon cannot start becomes unhealthy, so that `docker compose up --wait` fails, and
// its healthcheck says why.
func TestCannotStart(t *testing.T) {
	t.Cleanup(func() {
		if out, err := stack.Compose(context.Background(), "up", "-d", "--wait", "--wait-timeout", "120"); err != nil {
			t.Error(err, out)
		}
	})
	const up = "up -d --no-build --no-deps --wait --wait-timeout 120 proxy"
	broken := []string{"UPSTREAM_CA_FILE=" + filepath.Join(root, "README.md")}
	if out, err := stack.ComposeWith(t.Context(), broken, strings.Fields(up)...); err == nil {
		t.Errorf("docker compose up --wait succeeds:\n%s", out)
	}
	said := docker(t, "inspect", "-f", "{{.State.Health.Status}}{{range .State.Health.Log}} {{.Output}}{{end}}", stack.Container("proxy"))
	if !strings.HasPrefix(said, "unhealthy") || !strings.Contains(said, "cannot start: UPSTREAM_CA_FILE: the file contains no certificate") {
		t.Errorf("the engine says %q", said)
	}
	missing := []string{"UPSTREAM_CA_FILE=" + filepath.Join(apis, "lost.pem")}
	if out, err := stack.ComposeWith(t.Context(), missing, strings.Fields(up)...); err == nil || !strings.Contains(out, filepath.Join(apis, "lost.pem")) {
		t.Errorf("a path that is not there: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(apis, "lost.pem")); err == nil {
		t.Error("the engine has made a folder of a path that is not there")
	}
}

// TestBrokenResolver: when code cannot resolve names, the sandbox is not ready, and says why: a server that does not answer,
// or a file that only its owner may read, as in a clone made with umask 077.
func TestBrokenResolver(t *testing.T) {
	t.Cleanup(func() {
		stack.With()
		if out, err := stack.Compose(context.Background(), "up", "-d", "--wait", "--wait-timeout", "120"); err != nil {
			t.Error(err, out)
		}
	})
	closed := filepath.Join(apis, "resolv.conf")
	testkit.Must(t, os.WriteFile(closed, []byte("nameserver 198.18.0.1\n"), 0o600))
	t.Cleanup(func() { _ = os.Remove(closed) })
	stack.With("e2e/docker-compose.resolver.yml")
	for setting, want := range map[string]string{
		"E2E_RESOLVER=":          "code cannot resolve the name of a host",
		"E2E_RESOLVER=" + closed: "(code cannot read resolv.conf: ",
	} {
		up := strings.Fields("up -d --no-build --no-deps sandbox")
		if out, err := stack.ComposeWith(t.Context(), []string{setting}, up...); err != nil {
			t.Fatal(err, out)
		}
		for began := time.Now(); !strings.Contains(stack.Logs(), want); time.Sleep(300 * time.Millisecond) {
			if time.Since(began) > healTime {
				t.Fatalf("%s: the sandbox does not say %q", setting, want)
			}
		}
		if state := docker(t, "inspect", "-f", "{{.State.Health.Status}}", stack.Container("sandbox")); state == "healthy" {
			t.Errorf("%s: the sandbox is healthy without a resolver", setting)
		}
	}
}
