package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
