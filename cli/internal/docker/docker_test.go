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
