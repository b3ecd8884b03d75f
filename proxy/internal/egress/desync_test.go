package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// deaf is a server that answers heads and reads no bodies: it takes what follows a head for the next request, as
// Python's http.server does for a method whose handler reads nothing. Its answer names the connection.
type deaf struct {
	mu    sync.Mutex
	conns int
	lines []string // of every request, after the number of its connection
	heads []string
	// after is sent after the answer to a request with this word in its head.
	after map[string]string
}

func (d *deaf) serve(c net.Conn) {
	d.mu.Lock()
	d.conns++
	n := d.conns
	d.mu.Unlock()
	in := bufio.NewReader(c)
	for {
		head := ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			head += line
		}
		line, _, _ := strings.Cut(head, "\r\n")
		d.mu.Lock()
		d.lines, d.heads = append(d.lines, fmt.Sprintf("%d %s", n, line)), append(d.heads, head)
		d.mu.Unlock()
		more := ""
		for word, text := range d.after {
			if strings.Contains(line, word) {
				more = text
			}
		}
		text := fmt.Sprintf("connection %d answers %s", n, line)
		length := fmt.Sprintf("Content-Length: %d\r\n", len(text))
		if strings.HasPrefix(line, "HEAD ") {
			text = ""
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%s\r\n%s%s", length, text, more)
	}
}

// request is the head of the one request whose line has this word.
func (d *deaf) request(t *testing.T, word string) (line, head string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, l := range d.lines {
		if strings.Contains(l, word) {
			line, head = l, d.heads[i]
		}
	}
	return line, head
}

// TestDesync: however a server reads a body, no request follows it on its connection: none with a credential, and none
// of another run.
// Promise: one-reading
func TestDesync(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT", "PATCH", "PURGE", "PROPFIND"} {
		for _, chunked := range []bool{false, true} {
			for _, h2 := range []bool{false, true} {
				for _, same := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/chunked=%t/h2=%t/same run=%t", method, chunked, h2, same), func(t *testing.T) {
						r := newRig(t, setup{})
						d := &deaf{}
						r.upstreams.raw(d.serve)
						r.beginIn(0, 1)
						r.beginIn(1, 1)
						var rest io.Reader = strings.NewReader("POST /chosen HTTP/1.1\r\nContent-Length: 1000\r\nX-Rest: ")
						if chunked {
							rest = struct{ io.Reader }{rest}
						}
						q, err := http.NewRequest(method, "https://"+demoHost+"/first", rest)
						check(t, err)
						resp, err := r.clientIn(0, h2).Do(q)
						check(t, err)
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						other := slot.ID(1)
						if same {
							other = 0
						}
						q, _ = http.NewRequest(http.MethodGet, "https://"+demoHost+"/second", nil)
						q.Header.Set("Authorization", "Bearer "+tokenName)
						resp, err = r.clientIn(other, h2).Do(q)
						check(t, err)
						if text := body(t, resp); text != "connection 2 answers GET /second HTTP/1.1" {
							t.Errorf("the second request got %q", text)
						}
						if _, head := d.request(t, "/second"); !strings.HasPrefix(head, "GET /second ") || !strings.Contains(head, secretValue) {
							t.Errorf("the second request arrived as %q; all: %q", head, d.lines)
						}
						if _, head := d.request(t, "/first"); !strings.Contains(head, "Connection: close\r\n") {
							t.Errorf("the first request does not say that it is the last one: %q", head)
						}
					})
				}
			}
		}
	}
}

// TestAnswersStay: what a server sends after an answer, which code may have chosen, is never another run's answer.
// Promise: one-reading
func TestAnswersStay(t *testing.T) {
	const chosen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nchosen"
	for name, first := range map[string]struct{ Method, after string }{
		"nothing":                          {"GET", ""},
		"behind a body of the length said": {"GET", chosen},
		"as the body of a HEAD":            {"HEAD", chosen},
		"behind a POST without a body":     {"POST", chosen},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%t", name, h2), func(t *testing.T) {
				r := newRig(t, setup{})
				d := &deaf{after: map[string]string{"/first": first.after}}
				r.upstreams.raw(d.serve)
				r.beginIn(0, 1)
				r.beginIn(1, 1)
				clients := [2]*http.Client{r.clientIn(0, h2), r.clientIn(1, h2)}
				for range 20 { // whether the transport sees the bytes before it reuses the connection is a race
					q, err := http.NewRequest(first.Method, "https://"+demoHost+"/first", nil)
					check(t, err)
					resp, err := clients[0].Do(q)
					check(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					resp, err = clients[1].Get("https://" + demoHost + "/second")
					check(t, err)
					if text := body(t, resp); !strings.HasSuffix(text, "answers GET /second HTTP/1.1") {
						t.Fatalf("the second run got %q", text)
					}
				}
				firsts := map[string]bool{}
				for _, l := range d.lines {
					n, line, _ := strings.Cut(l, " ")
					if strings.Contains(line, "/first") {
						firsts[n] = true
					} else if firsts[n] {
						t.Fatalf("connection %s was used by both runs: %q", n, d.lines)
					}
				}
			})
		}
	}
}

// TestConnectionsOfRuns: an HTTP/1 connection ends with the run that used it.
// Promise: one-run-one-identity
func TestConnectionsOfRuns(t *testing.T) {
	r := newRig(t, setup{})
	ended := make(chan int, 8)
	d := &deaf{}
	r.upstreams.raw(func(c net.Conn) { d.serve(c); ended <- 1 })
	for generation := uint64(1); generation <= 3; generation++ {
		end := r.beginIn(0, generation)
		client := r.client(false)
		for range 3 {
			resp, err := client.Get("https://" + demoHost + "/")
			check(t, err)
			if text := body(t, resp); !strings.HasPrefix(text, fmt.Sprintf("connection %d ", generation)) {
				t.Errorf("run %d: %q", generation, text)
			}
		}
		end()
		select {
		case <-ended:
		case <-time.After(testkit.Patience):
			t.Fatalf("the connection of run %d is open after its end", generation)
		}
	}
}
