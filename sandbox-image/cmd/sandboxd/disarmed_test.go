//go:build disarm

package main

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestDisarmed: without its defence each of these attacks succeeds: those of a hostile MCP server, which need a process
// in a server slot, and those on a network that enforces no policy. e2e/negative runs it with the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("network-closed", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "network-closed")
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		testkit.Must(t, err)
		defer l.Close()
		if err := checkClosed(t.Context(), l.Addr().String()); err != nil {
			t.Errorf("it is found by something else: %v", err)
		}
	})
	t.Run("closed-folders", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "closed-folders")
		f, homes := foldersOf(t, 0o777)
		testkit.Must(t, closeFolders(f, homes))
		if info, err := os.Stat(f.tmp); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("it is closed by something else: %v %v", info.Mode(), err)
		}
	})
	t.Run("code-packages", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "code-packages")
		w := servers(t, User, 1)
		pinForCode(t, w)
		testkit.WaitFor(t, func() bool { return writePackages(t, w) == nil })
	})
	t.Run("folder-choice", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "folder-choice")
		w := startChosen(t, User)
		w.Folders = []string{"one"}
		if r := w.RunCode(t, "print(open('/files/two/a.csv').read())", testkit.Patience); r.Stdout == "" {
			t.Errorf("the attack is stopped by something else: %s", r.Stderr)
		}
	})
	t.Run("folder-files", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "folder-files")
		w := startChosen(t, User)
		if r := w.RunCode(t, "import os\nos.symlink('/etc/passwd', '/files/drafts/data.csv')\n"+
			"open('/files/drafts/own', 'w').close()\nos.chmod('/files/drafts/own', 0o4755)\nos.mkfifo('/files/drafts/pipe')", testkit.Patience); r.Exit.Code != 0 {
			t.Errorf("the attack is stopped by something else: %s", r.Stderr)
		}
	})
	t.Run("container-writes", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "container-writes")
		w := startChosen(t, Container)
		w.Folders = []string{"two"}
		if r := w.RunCode(t, "open('/folders/drafts/new', 'w')", testkit.Patience); r.Exit.Code != 0 {
			t.Errorf("the attack is stopped by something else: %s", r.Stderr)
		}
	})
	for defence, row := range map[string]struct {
		mode  Mode
		tries func(s *Server) string
	}{
		"server-package": {User, func(*Server) string {
			return "write " + sandboxapi.PackageDir(hostilePackage) + "/deno.lock x"
		}},
		"server-group": {Container, func(*Server) string { return "write /tmp/of-a-server x" }},
		"server-home": {Root, func(s *Server) string {
			return "fill " + sandboxapi.HomeDir(s.Slot) + "/large " + strconv.Itoa(jail.HomeSize+8<<20)
		}},
	} {
		t.Run(defence, func(t *testing.T) {
			// Landlock stands behind the group.
			t.Setenv("CODEFORGE_DISARM", defence+",container-writes")
			w := servers(t, row.mode, 1)
			install(t, w, hostilePackage)
			s := w.StartServer(t, sandboxapi.ServerHead{Package: hostilePackage})
			if _, err := s.SendCommand(row.tries(s)); err != nil {
				t.Errorf("the attack is stopped by something else: %v", err)
			}
		})
	}
}
