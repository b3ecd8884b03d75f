package egress_test

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed testdata/readings/peers
var scripts embed.FS

// Peers are the parsers of other languages and of Go. Each language has a process that lives as long as the test.
type Peers struct {
	addrs []string
	names []string
	// Missing names the peers that are not installed on this machine.
	Missing []string
}

// programs are the commands of the peers. prints means that the peer prints its port; otherwise it gets one.
var programs = []struct {
	name   string
	argv   []string // SCRIPT and PORT are replaced
	prints bool
}{
	{"node", []string{"node", "SCRIPT/node.cjs"}, true},
	{"python", []string{"/usr/bin/python3", "SCRIPT/python.py"}, true},
	{"perl", []string{"perl", "SCRIPT/perl.pl"}, true},
	{"php", []string{"php", "-S", "127.0.0.1:PORT", "SCRIPT/php.php"}, false},
	{"ruby", []string{"puma", "-q", "-t", "1:1", "-b", "tcp://127.0.0.1:PORT", "SCRIPT/ruby.ru"}, false},
}

// StartPeers starts every installed peer. modules is the folder of the npm packages.
func StartPeers(t testing.TB, modules string) *Peers {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, scripts); err != nil {
		t.Fatal(err)
	}
	p := &Peers{}
	for _, prog := range programs {
		if _, err := exec.LookPath(prog.argv[0]); err != nil {
			p.Missing = append(p.Missing, prog.name)
			continue
		}
		if err := p.start(t, prog.name, prog.argv, prog.prints, dir, modules); err != nil {
			p.Missing = append(p.Missing, fmt.Sprintf("%s (%v)", prog.name, err))
		}
	}
	p.add("go", startServer(t, "./e2e/cmd/gopeer"))
	return p
}

func (p *Peers) add(name, addr string) {
	p.names, p.addrs = append(p.names, name), append(p.addrs, addr)
}

// start runs one program and waits until it listens.
func (p *Peers) start(t testing.TB, name string, argv []string, prints bool, dir, modules string) error {
	port := ""
	if !prints {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		l.Close()
	}
	var args []string
	for _, a := range argv {
		args = append(args, strings.NewReplacer("SCRIPT", filepath.Join(dir, "testdata", "readings", "peers"), "PORT", port).Replace(a))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "PYTHONWARNINGS=ignore", "RACK_ENV=none", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	if prints {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return fmt.Errorf("it did not start: %s", said)
		}
		words := strings.Fields(line)
		p.add(name, "127.0.0.1:"+words[0])
		if len(words) > 1 && words[1] != "0" {
			p.add("cherrypy", "127.0.0.1:"+words[1])
		}
		if len(words) > 2 && words[2] != "-" {
			p.Missing = append(p.Missing, strings.Split(words[2], ",")...)
		}
		if len(words) > 1 && words[1] == "0" {
			p.Missing = append(p.Missing, "cherrypy")
		}
		return nil
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p.wait(name, "127.0.0.1:"+port, said)
}

// wait waits up to ten seconds for a server to listen.
func (p *Peers) wait(name, addr string, said fmt.Stringer) error {
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			p.add(name, addr)
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("it did not start: %s", said)
}

// tail keeps the end of the output of a process.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// Ask lets every peer read a request. A peer whose server rejects it with an error status has no readings.
func (p *Peers) Ask(request []byte) ([]Reading, error) {
	framed, err := reframe(request)
	if err != nil {
		return nil, err
	}
	answers := make([][]Reading, len(p.addrs))
	errs := make([]error, len(p.addrs))
	var wg sync.WaitGroup
	for i, addr := range p.addrs {
		wg.Go(func() {
			if answers[i], errs[i] = ask(addr, framed); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", p.names[i], errs[i])
			}
		})
	}
	wg.Wait()
	var out []Reading
	for _, a := range answers {
		out = append(out, a...)
	}
	return out, errors.Join(errs...)
}

func ask(addr string, request []byte) ([]Reading, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0) // thousands of closed connections would use up the ports
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = c.Write(request) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil // the server closed the connection; a dead server would not have accepted it
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return nil, nil
	}
	var answer struct{ Readings []Reading }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w in %.300q", err, body)
	}
	return answer.Readings, nil
}

// reframe writes a request with a Content-Length instead of chunks, because some peers' servers do not read chunks. An
// incomplete request becomes complete.
func reframe(request []byte) ([]byte, error) {
	head, body, ok := strings.Cut(string(request), "\r\n\r\n")
	if !ok {
		return nil, errors.New("no head left")
	}
	lines := strings.Split(head, "\r\n")
	kept := lines[:1]
	chunked := false
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ":")
		switch {
		case strings.EqualFold(name, "Transfer-Encoding") && strings.EqualFold(strings.TrimSpace(value), "chunked"):
			chunked = true
		case strings.EqualFold(name, "Content-Length"), strings.EqualFold(name, "Transfer-Encoding"):
		default:
			kept = append(kept, l)
		}
	}
	if chunked {
		body = dechunk(body)
	}
	text := strings.Join(kept, "\r\n")
	if body != "" {
		text += fmt.Sprintf("\r\nContent-Length: %d", len(body))
	}
	return []byte(text + "\r\n\r\n" + body), nil
}

func dechunk(s string) string {
	var out strings.Builder
	for s != "" {
		line, rest, ok := strings.Cut(s, "\r\n")
		var n int
		if _, err := fmt.Sscanf(line, "%x", &n); !ok || err != nil || n == 0 {
			break
		}
		out.WriteString(rest[:min(n, len(rest))])
		s = strings.TrimPrefix(rest[min(n, len(rest)):], "\r\n")
	}
	return out.String()
}
