package docker

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/stdiorelay"
)

// TestMain is also the relay that TestDial starts.
func TestMain(m *testing.M) {
	switch path := os.Getenv("RELAY_TO"); path {
	case "":
		os.Exit(m.Run())
	case "nowhere":
		_, _ = os.Stderr.WriteString("\nError: No such container: x\nmore\n")
		os.Exit(1)
	default:
		if stdiorelay.RelayStdio(context.Background(), path, os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// TestPick: the stack of the folder is found by any path to it, and never that of another folder.
func TestPick(t *testing.T) {
	home, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Skip(err) // Windows, without the right to make links
	}
	all := parseContainers([]byte("a-mcp-server-1\ta\t"+home+"\r\nb-mcp-server-1\tb\t"+t.TempDir()+"\nnot a line\n--evil\tx\t"+home+"\n"), Service)
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	two := append(all, serverContainer{"c-mcp-server-1", "c", link})
	for _, row := range []struct {
		all                 []serverContainer
		home, project, want string
		err                 string
	}{
		{all, home, "", "a-mcp-server-1", ""},
		{all, link, "", "a-mcp-server-1", ""},
		{all, home, "a", "a-mcp-server-1", ""},
		{all, home, "b", "", ""},
		{all, filepath.Join(home, "none"), "", "", ""},
		{two, home, "", "", "2 stacks of this folder run (a-mcp-server-1, c-mcp-server-1)"},
		{two, home, "c", "c-mcp-server-1", ""},
	} {
		got, err := pickContainer(row.all, row.home, row.project)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%+v: %q, %v", row, got, err)
		}
	}
}

// TestForeignImage: an image whose author gave it the labels of a stack is not taken for a part of one, whatever folder it
// names: it would be sent code, decisions and logins.
// Promise: foreign-images
func TestForeignImage(t *testing.T) {
	home := t.TempDir()
	t.Chdir(home)
	for _, dir := range []string{".", "/proc/self/cwd", home} {
		for _, name := range []string{"happy_curie", "x-mcp-server-1", "codeforge-mcp-server", "codeforge-mcp-server-run-0f3a", "codeforge-proxy-1"} {
			if got, err := pickContainer(parseContainers([]byte(name+"\tcodeforge\t"+dir+"\n"), Service), home, ""); got != "" || err != nil {
				t.Errorf("%s in %s: %q, %v", name, dir, got, err)
			}
		}
	}
	servers := parseContainers([]byte("codeforge-mcp-server-1\tcodeforge\t"+home+"\n"), Service)
	proxies := parseContainers([]byte("happy_curie\tcodeforge\t"+home+"\ncodeforge-proxy-1\tcodeforge\t"+home+"\n"), Proxy)
	if got, err := findBeside(servers, proxies, "codeforge-mcp-server-1"); got != "codeforge-proxy-1" || err != nil {
		t.Errorf("the proxy: %q, %v", got, err)
	}
}

// TestCheckName: what is passed to docker exec is a name and never an option.
// Promise: operators-socket
func TestCheckName(t *testing.T) {
	for _, bad := range []string{"", "-it", "--privileged", "a b", "a/b", "a;b", strings.Repeat("x", 200)} {
		if CheckName(bad) == nil {
			t.Errorf("%q passed", bad)
		}
		if c, err := DialOperator(t.Context(), bad); err == nil {
			_ = c.Close()
			t.Errorf("dialled %q", bad)
		}
	}
	if err := CheckName("codeforge-mcp-server-1"); err != nil {
		t.Error(err)
	}
}

// relayTo is the command of a relay to a socket.
func relayTo(t *testing.T, to string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "RELAY_TO="+to)
	return cmd
}

// TestDial: a connection carries bytes both ways, ends with either side, and leaves no process.
func TestDial(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heard := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(c).ReadBytes('\n')
		_, _ = c.Write(bytes.ToUpper(line))
		rest, _ := io.ReadAll(c)
		heard <- append(line, rest...)
	}()
	cmd := relayTo(t, socket)
	c, err := dialRelay(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HELLO\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case text := <-heard:
		if string(text) != "hello\n" {
			t.Errorf("heard %q", text)
		}
	case <-time.After(time.Minute):
		t.Error("the other side did not end")
	}
	if cmd.ProcessState == nil {
		t.Error("the process is left")
	}
}

// TestDialFails: the error is what the engine says, and comes before anything was sent.
func TestDialFails(t *testing.T) {
	if c, err := dialRelay(t.Context(), relayTo(t, "nowhere")); err == nil || !strings.HasSuffix(err.Error(), "docker exec: Error: No such container: x") {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := dialRelay(t.Context(), relayTo(t, filepath.Join(t.TempDir(), "none"))); err == nil {
		t.Errorf("%v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := dialRelay(ctx, relayTo(t, "nowhere")); err == nil {
		t.Errorf("%v", c)
	}
}

// TestFakeEngine: the stack's containers are those that docker ps lists by the label of a service. Without an engine
// there is no stack, and no proxy.
func TestFakeEngine(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("the stand-in for docker is a shell script")
	}
	home, bin := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in $FAILS) exit 1;;\n" +
		"*service=mcp-server\\ *) printf 'a-mcp-server-1\\ta\\t" + home + "\\nb-mcp-server-1\\tb\\t/b\\n';;\n" +
		"*service=proxy\\ *) printf 'c-proxy-1\\tc\\t" + home + "\\na-proxy-1\\ta\\t/other\\na-proxy-2\\ta\\t" + home + "\\na-proxy-x\\ta\\t" + home + "\\n';;\n" +
		"'exec -i a-mcp-server-1 codeforge relay'|'exec -i a-proxy-2 egress-proxy relay') echo >&2 started; exit 1;;\nesac\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("FAILS", "-")
	if name, err := FindContainer(t.Context(), home, ""); name != "a-mcp-server-1" || err != nil {
		t.Errorf("the server is %q, %v", name, err)
	}
	for server, want := range map[string]string{
		"a-mcp-server-1": "a-proxy-2", "b-mcp-server-1": "no proxy runs in the stack of b-mcp-server-1", "x": "no proxy runs in the stack of x",
	} {
		name, err := FindProxy(t.Context(), server)
		if err != nil {
			name += err.Error()
		}
		if name != want {
			t.Errorf("the proxy of %s is %s, want %s", server, name, want)
		}
	}
	for _, fails := range []string{"*service=mcp-server\\ *", "*service=proxy\\ *"} {
		t.Setenv("FAILS", strings.ReplaceAll(fails, "\\", ""))
		if name, err := FindProxy(t.Context(), "a-mcp-server-1"); err == nil || err.Error() != "docker ps: exit status 1" {
			t.Errorf("%s fails: %q, %v", fails, name, err)
		}
	}
	t.Setenv("FAILS", "*")
	if name, err := FindContainer(t.Context(), home, ""); name != "" || err != nil {
		t.Errorf("without an engine: %q, %v", name, err)
	}
	t.Setenv("FAILS", "-")
	for name, dial := range map[string]func(context.Context, string) (net.Conn, error){"a-mcp-server-1": DialOperator, "a-proxy-2": DialProxy} {
		if _, err := dial(t.Context(), name); err == nil || err.Error() != "docker exec: started" {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := dial(t.Context(), "-x"); err == nil || !strings.Contains(err.Error(), "want docker://CONTAINER") {
			t.Errorf("an option as a name: %v", err)
		}
	}
	t.Setenv("PATH", "")
	if _, err := DialProxy(t.Context(), "a-proxy-2"); err == nil || !strings.HasPrefix(err.Error(), "docker exec: ") {
		t.Errorf("without docker: %v", err)
	}
}

// TestStderrStart keeps the first line of the first 4 KiB.
func TestStderrStart(t *testing.T) {
	var s stderrStart
	if got := s.firstLine(); got != "the relay in the container ended without a message" {
		t.Error(got)
	}
	for _, part := range []string{"\n \nfirst\nsecond", strings.Repeat("x", maxText), "more"} {
		if n, err := s.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if got := s.firstLine(); got != "first" || s.buf.Len() != maxText {
		t.Errorf("%q of %d bytes", got, s.buf.Len())
	}
}

func TestIsComposeName(t *testing.T) {
	for name, want := range map[string]bool{
		"p-proxy-1": true, "p-proxy-65535": true, "p-proxy-65536": false, "p-proxy-": false, "p-proxy-x": false, "x-proxy-1": false, "p-proxy-1-2": false,
	} {
		if got := isComposeName(name, "p", "proxy"); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
