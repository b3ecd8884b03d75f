package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// A server's command line has the narrowest flags, and ~/ in what the user wrote is its home.
func TestStartCommand(t *testing.T) {
	const pkg = "npm:x@1.0.0"
	dir, home := runapi.PackageDir(pkg), runapi.HomeDir(103)
	slot := func(s controlapi.Server) *sandboxSlot {
		s.Package = pkg
		return &sandboxSlot{
			api:   controlapi.API{Name: "x", Domains: []string{"a.example.com", "b.example.com"}, Server: &s},
			lease: runapi.Lease{Slot: 103},
		}
	}
	start := slot(controlapi.Server{
		Args: []string{"~/data", "~", "a~/b"}, Env: map[string]string{"FILE": "~/memory.json", "TOKEN": "X_AUTH_TOKEN"},
	}).Start()
	line := strings.Join(start.Command, " ")
	for _, want := range []string{
		"--allow-read=" + dir + "," + home + " ", "--allow-write=" + home + " ", "--allow-net=a.example.com,b.example.com ",
		" " + pkg + " " + home + "/data ~ a~/b", "--frozen", "--no-config",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%s\nlacks %q", line, want)
		}
	}
	if strings.Contains(line, "--allow-run") || strings.Contains(line, "--allow-ffi") || strings.Contains(line, "--allow-all") {
		t.Errorf("too much is allowed: %s", line)
	}
	if start.Env["FILE"] != home+"/memory.json" || start.Env["TOKEN"] != "X_AUTH_TOKEN" || len(start.Env) != 2 {
		t.Errorf("environment %v", start.Env)
	}
	runs := slot(controlapi.Server{Permissions: []string{"run"}}).Start().Command
	if !slices.Contains(runs, "--allow-all") {
		t.Errorf("a server that may start programs: %q", runs)
	}
}
