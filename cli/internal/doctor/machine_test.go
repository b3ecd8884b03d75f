package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestEngine: a container that is not healthy is a failure that says what its healthcheck said last.
func TestEngine(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
case "$1" in
version) echo 20.10 ;;
compose) echo 2.26 ;;
ps) case "$*" in *.project=two) ;; *) exit 1 ;; esac; printf 'codeforge-proxy-1\tUp 4 seconds (unhealthy)\ncodeforge-mcp-server-1\tCreated\ncodeforge-settings-1\tExited (0) 5 seconds ago\n' ;;
inspect) printf '%s\n' '{"Status":"unhealthy","Log":[{"Output":"starting"},{"Output":"egress-proxy: cannot start: UPSTREAM_CA_FILE: the file\ncontains no certificate\n"}]}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var failed []string
	for _, f := range checkEngine(t.Context(), Config{Project: "two"}) {
		if f.Status == Fail {
			failed = append(failed, f.Check+": "+f.Text)
		}
	}
	const why = " (egress-proxy: cannot start: UPSTREAM_CA_FILE: the file contains no certificate)"
	want := "container codeforge-proxy-1: Up 4 seconds (unhealthy)" + why + "\n" + "container codeforge-mcp-server-1: Created" + why
	if strings.Join(failed, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(failed, "\n"), want)
	}
}

// TestNoBinaries: a folder without programs of embedded mode, as Docker mode leaves it, causes no warning.
func TestNoBinaries(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only: elsewhere there is no embedded mode")
	}
	dir := t.TempDir()
	for _, c := range []struct {
		add  string
		want Status
	}{{"codeforge", Skip}, {"sandboxd", Warn}} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, c.add), nil, 0o600))
		got := checkVersions(t.Context(), Config{Bin: dir})
		if f := got[1]; f.Check != "binaries" || f.Status != c.want || c.want == Skip && len(got) != 2 {
			t.Errorf("with %s: %+v", c.add, got)
		}
	}
}
