package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestNamesakes: whoever starts CodeForge as root is told which users of the machine have a user id of its parts.
// Promise: least-privilege
func TestNamesakes(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nfor id in \"$@\"; do case $id in 19999 | 20003 | 20100) echo \"alice$id:x:$id:100:Alice:/home/a:/bin/sh\" ;; esac; done\nexit 2\n"
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, row := range []struct {
		plan supervisorSetup
		want string
	}{
		{supervisorSetup{Privileged: true, Slots: 8, Servers: 8}, "alice19999 alice20003 alice20100"},
		{supervisorSetup{Privileged: true, Slots: 3}, "alice19999"},
		{supervisorSetup{Slots: 8, Servers: 8}, ""},
	} {
		var got []string
		for _, w := range findSharedUIDs(t.Context(), row.plan) {
			got = append(got, strings.Split(w, "\"")[1])
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%+v: %q, want %s", row.plan, got, row.want)
		}
	}
}
