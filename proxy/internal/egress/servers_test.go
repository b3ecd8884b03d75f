package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// servers are real servers that answer a DELETE without reading its body. Each prints its port first, and answers every
// request with its request line and the value of Authorization.
var servers = map[string][]string{
	"Python's http.server": {"python3", "-uc", `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        text = (self.requestline + " | " + str(self.headers.get("X-Run"))).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers(); self.wfile.write(text)
    do_GET = do_DELETE = do_POST = answer
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_address[1])
s.serve_forever()`},
	"Node's http": {"node", "-e", `
const s = require("http").createServer((q, r) => r.end(q.method + " " + q.url + " HTTP/1.1 | " + (q.headers["x-run"] ?? "None")));
s.listen(0, "127.0.0.1", () => console.log(s.address().port));`},
}

// TestRealServers: a run gets the answer to its own request, whatever it or another run has sent before.
// Promise: one-reading
func TestRealServers(t *testing.T) {
	for name, command := range servers {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "allow_http": true`)}})
			r.upstreams.lead(80, start(t, command))
			r.beginIn(0, 1)
			r.beginIn(1, 1)
			inner := "GET /chosen HTTP/1.1\r\nHost: x\r\nX-Run: of the body\r\n\r\n"
			for i := range 10 {
				for _, m := range []string{"DELETE", "POST"} {
					q, err := http.NewRequest(m, "http://"+demoHost+"/first", strings.NewReader(inner))
					check(t, err)
					resp, err := r.clientIn(0, false).Do(q)
					check(t, err)
					if text := body(t, resp); text != m+" /first HTTP/1.1 | None" {
						t.Errorf("the first run got %q", text)
					}
				}
				for _, id := range []int{1, 0} {
					want := fmt.Sprintf("run %d, time %d", id, i)
					q, _ := http.NewRequest("GET", "http://"+demoHost+"/second", nil)
					q.Header.Set("X-Run", want)
					q.Header.Set("Authorization", "Bearer "+tokenName)
					client := r.client(false)
					if id == 1 {
						client = r.clientIn(1, false)
					}
					resp, err := client.Do(q)
					check(t, err)
					if text := body(t, resp); text != "GET /second HTTP/1.1 | "+want {
						t.Errorf("%s got %q", want, text)
					}
				}
			}
		})
	}
}

// start starts a server and returns its address.
func start(t *testing.T, command []string) string {
	t.Helper()
	path, err := exec.LookPath(command[0])
	if err != nil {
		testkit.SkipBecause(t, command[0]+" is not installed")
	}
	cmd := exec.CommandContext(t.Context(), path, command[1:]...) //nolint:gosec // fixed programs
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	port := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		port <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case p := <-port:
		return "127.0.0.1:" + p
	case <-time.After(testkit.Patience):
		t.Fatal("the server does not start")
		return ""
	}
}
