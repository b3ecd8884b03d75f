package doctor

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// serveAt answers requests on a unix socket with a JSON text by path. Other paths get status 404.
func serveAt(t *testing.T, socket string, answers map[string]string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	}))
	l, err := net.Listen("unix", socket) //nolint:noctx // at once
	testkit.Must(t, err)
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
}

func list(found []Finding) string {
	var lines []string
	for _, f := range found {
		lines = append(lines, fmt.Sprintf("%s|%s|%s", f.Check, f.Status, f.Text))
	}
	return strings.Join(lines, "\n")
}

// TestOperator: frozen sessions and a failing Postgres are findings. A server that does not answer is reported elsewhere.
func TestOperator(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c := Config{Server: mcpclient.Config{Socket: socket}}
	answers := map[string]string{}
	serveAt(t, socket, answers)
	alarms, database := operatorapi.Prefix+"alarms", operatorapi.Prefix+"database"
	for _, row := range []struct{ alarms, database, wantAlarms, wantDatabase string }{
		{"", "", "", ""},
		{"[]", `{"used":false}`, "", ""},
		{`[{"session":"a"}]`, `{"used":false,"problem":"x"}`, "", ""},
		{`[{"session":"a","frozen":true}]`, `{"used":true}`, "alarms|warning|1 sessions are frozen", "database|ok|Postgres answers"},
		{`[{"session":"a","frozen":true},{"session":"b","frozen":true}]`, `{"used":true,"problem":"no route"}`, "alarms|warning|2 sessions are frozen", "database|warning|no route"},
	} {
		delete(answers, alarms)
		delete(answers, database)
		if row.alarms != "" {
			answers[alarms], answers[database] = row.alarms, row.database
		}
		a, d := list(checkAlarms(t.Context(), c)), list(checkDatabase(t.Context(), c))
		if !strings.HasPrefix(a, row.wantAlarms) || (a == "") != (row.wantAlarms == "") || d != row.wantDatabase {
			t.Errorf("%+v: %q, %q", row, a, d)
		}
	}
	for _, c := range []Config{{Server: mcpclient.Config{URL: "docker://-"}}, {Server: mcpclient.Config{URL: "http://127.0.0.1:1/mcp"}}} {
		if a, d := checkAlarms(t.Context(), c), checkDatabase(t.Context(), c); a != nil || d != nil {
			t.Errorf("%s: %v, %v", c.Server.URL, a, d)
		}
	}
}

// TestRunning: the findings about a supervisor, about a server elsewhere, and about the port of either.
func TestRunning(t *testing.T) {
	state, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	ready := `{"ready":true}`
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			fmt.Fprint(w, ready)
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	}))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	c := Config{State: state, Port: port, Server: mcpclient.Config{URL: web.URL + "/mcp"}}
	check := func(name, wantRunning, wantPort string) {
		t.Helper()
		running, port := list(checkRunning(t.Context(), c)), list(checkPort(t.Context(), c))
		if !strings.Contains(running, wantRunning) || !strings.Contains(port, wantPort) || (port == "") != (wantPort == "") {
			t.Errorf("%s: %s, want %s\n%s, want %s", name, running, wantRunning, port, wantPort)
		}
	}
	check("elsewhere", "|skipped|CodeForge is not running (state directory "+state.Path()+")\nserver|ok|answers at "+web.URL, fmt.Sprintf("port|ok|%d is used by CodeForge, in Docker or started elsewhere", port))
	ready = `{"ready":false}`
	check("not ready", "server|failed|", "port|warning|")
	web.Close()
	check("closed", "server|skipped|no answer at "+web.URL, fmt.Sprintf("port|ok|%d is free", port))
	c.Container = true
	check("closed, in a container", "server|failed|", "is free")
	c.Port = 0
	check("any port", "server|failed|", "")
	c.Server = mcpclient.Config{URL: "docker://-"}
	if got := list(checkRunning(t.Context(), c)); strings.Contains(got, "server") {
		t.Errorf("no place: %s", got)
	}
	unlock, err := state.Lock()
	testkit.Must(t, err)
	defer unlock.Close()
	up := statedir.UpState{PID: os.Getpid(), URL: "http://127.0.0.1:7", Port: 7, State: state.Path(), Started: time.Now()}
	testkit.Must(t, state.WriteUp(up))
	const supervisor = "embedded mode|ok|is running (process "
	check("without a proxy", supervisor, "port|ok|7 is used by CodeForge")
	answers := map[string]string{}
	serveAt(t, state.Join("run", statedir.ControlSocket), answers)
	check("a proxy that fails", "\nproxy|failed|", "7")
	answers["/v1/health"] = `{"ready":false,"problem":"no apis"}`
	check("a proxy that is not ready", "\nproxy|failed|no apis", "7")
	answers["/v1/health"] = `{"ready":true}`
	check("a proxy", "\nproxy|ok|answers", "7")
	up.Again = &statedir.Ended{}
	testkit.Must(t, state.WriteUp(up))
	check("after a restart", "\nrestart|warning|", "7")
	testkit.Must(t, os.RemoveAll(state.Join("run")))
	check("without a folder", "\nproxy|failed|", "7")
}
