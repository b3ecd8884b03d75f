package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// goodExec is the one exec body that the shim lets through.
const goodExec = `{"AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"User":"19998:19998","Cmd":["/usr/local/bin/sandboxd","attach","--socket","/run/sandboxd/sandboxd.sock"]}`

// noShim is why attacks on docker-shim do not exist in Kubernetes.
const noShim = "there is no engine, and no docker-shim"

// docker are attempts on the engine through docker-shim, which is started for them with an engine that records.
func docker() []Attack {
	const create = "/v1.41/containers/codeforge-sandbox/exec"
	id := strings.Repeat("a1", 32)
	rows := []struct{ name, method, path, body string }{
		{"listing containers", "GET", "/v1.41/containers/json", ""},
		{"creating a container", "POST", "/v1.41/containers/create", `{"Image":"x","HostConfig":{"Privileged":true,"Binds":["/:/host"]}}`},
		{"starting a container", "POST", "/v1.41/containers/codeforge-sandbox/start", ""},
		{"exec in another container", "POST", "/v1.41/containers/codeforge-proxy-1/exec", goodExec},
		{"exec in another container by an id", "POST", "/v1.41/containers/" + id + "/exec", goodExec},
		{"exec in a container of a similar name", "POST", "/v1.41/containers/codeforge-sandbox2/exec", goodExec},
		{"encoded slash in the path", "POST", "/v1.41/containers/codeforge-sandbox%2fexec", goodExec},
		{"encoded name", "POST", "/v1.41/containers/codeforge%2dproxy%2d1/exec", goodExec},
		{"double slash", "POST", "//v1.41/containers/codeforge-sandbox/exec", goodExec},
		{"double slash inside", "POST", "/v1.41//containers/codeforge-sandbox/exec", goodExec},
		{"dots in the path", "POST", "/v1.41/containers/x/../codeforge-sandbox/exec", goodExec},
		{"dots to another container", "POST", "/v1.41/containers/codeforge-sandbox/../codeforge-proxy-1/exec", goodExec},
		{"encoded dots", "POST", "/v1.41/containers/codeforge-sandbox/%2e%2e/codeforge-proxy-1/exec", goodExec},
		{"version with dots", "POST", "/v1.41/../containers/codeforge-sandbox/exec", goodExec},
		{"no version", "POST", "/containers/create", `{}`},
		{"a query that could mean something", "POST", create + "?detachKeys=ctrl-x", goodExec},
		{"absolute target", "POST", "http://engine" + "/v1.41/containers/create", `{}`},
		{"a fragment", "POST", create + "#/../create", goodExec},
		{"Privileged", "POST", create, strings.Replace(goodExec, "{", `{"Privileged":true,`, 1)},
		{"Privileged in lower case", "POST", create, strings.Replace(goodExec, "{", `{"privileged":true,`, 1)},
		{"User root", "POST", create, strings.Replace(goodExec, "19998:19998", "0:0", 1)},
		{"User twice", "POST", create, strings.Replace(goodExec, "{", `{"User":"0:0",`, 1)},
		{"user in lower case besides", "POST", create, strings.Replace(goodExec, "{", `{"user":"0:0",`, 1)},
		{"Env", "POST", create, strings.Replace(goodExec, "{", `{"Env":["LD_PRELOAD=/tmp/x.so"],`, 1)},
		{"WorkingDir", "POST", create, strings.Replace(goodExec, "{", `{"WorkingDir":"/tmp",`, 1)},
		{"Cmd of a shell", "POST", create, strings.Replace(goodExec, `["/usr/local/bin/sandboxd","attach","--socket","/run/sandboxd/sandboxd.sock"]`, `["sh"]`, 1)},
		{"Cmd with more arguments", "POST", create, strings.Replace(goodExec, `.sock"]`, `.sock","--debug"]`, 1)},
		{"Cmd twice", "POST", create, strings.Replace(goodExec, "{", `{"Cmd":["sh"],`, 1)},
		{"cmd in lower case behind", "POST", create, strings.Replace(goodExec, `"]}`, `"],"cmd":["sh"]}`, 1)},
		{"Tty", "POST", create, strings.Replace(goodExec, "{", `{"Tty":true,`, 1)},
		{"an unknown field", "POST", create, strings.Replace(goodExec, "{", `{"ConsoleSize":[1,1],"New":1,`, 1)},
		{"a second JSON value", "POST", create, goodExec + `{"Cmd":["sh"]}`},
		{"a body of 1 MiB", "POST", create, `{"Env":["` + strings.Repeat("x", 1<<20) + `"]}`},
		{"deep JSON", "POST", create, strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)},
		{"start of an id it did not create", "POST", "/v1.41/exec/" + id + "/start", `{"Detach":false,"Tty":false}`},
		{"inspect of an exec", "GET", "/v1.41/exec/" + id + "/json", ""},
		{"resize of an exec", "POST", "/v1.41/exec/" + id + "/resize?h=1&w=1", ""},
		{"attach to a container", "POST", "/v1.41/containers/codeforge-sandbox/attach?stream=1&stdin=1", ""},
		{"archive of a container", "GET", "/v1.41/containers/codeforge-sandbox/archive?path=/", ""},
		{"images, volumes, info", "GET", "/v1.41/info", ""},
		{"session and grpc", "POST", "/session", ""},
		{"another method", "PUT", create, goodExec},
		{"CONNECT", "CONNECT", "codeforge-sandbox:80", ""},
	}
	var list []Attack
	for _, r := range rows {
		list = append(list, Attack{
			Section: "D", Name: "docker-shim: " + r.name, Expected: "refused, the engine never asked", NoPod: noShim,
			Do: func(ctx context.Context, _ *world.World) (string, bool) {
				text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", r.method, r.path, len(r.body), r.body)
				return refusedByShim(ctx, text)
			},
		})
	}
	raw := func(name, text string) Attack {
		return Attack{Section: "D", Name: "docker-shim: " + name, Expected: "refused, the engine never asked", NoPod: noShim, Do: func(ctx context.Context, _ *world.World) (string, bool) { return refusedByShim(ctx, text) }}
	}
	return append(list,
		// Without it a shim that refuses everything, or a body here that is wrong, would hold all of these.
		Attack{Section: "D", Name: "docker-shim: control: the one exec", Expected: "created, in the shim's own words", NoPod: noShim, Do: func(ctx context.Context, _ *world.World) (string, bool) {
			answer, asked, err := throughShim(ctx, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", create, len(goodExec), goodExec))
			if err != nil {
				return err.Error(), false
			}
			return answer + ", asked for " + asked, strings.HasPrefix(answer, "HTTP/1.1 201") && asked == "POST /v1.41/containers/codeforge-sandbox/exec"
		}},
		raw("chunked body", "POST "+create+" HTTP/1.1\r\nHost: docker\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(goodExec), goodExec)),
		raw("two Content-Lengths", "POST "+create+" HTTP/1.1\r\nHost: docker\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\n{}POST /v1.41/containers/create HTTP/1.1\r\n\r\n"),
		raw("a second request behind an upgrade", "POST /v1.41/exec/"+id+"/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}POST /v1.41/containers/create HTTP/1.1\r\nHost: docker\r\nContent-Length: 2\r\n\r\n{}"),
		raw("start, with an upgrade, of an id it did not create", "POST /v1.41/exec/"+id+"/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"+`{"Detach":false, "Tty":false }`),
		raw("upgrade of another path", "GET /v1.41/containers/json HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
	)
}

// refusedByShim: the shim answered with a refusal, and its engine heard nothing but a ping.
func refusedByShim(ctx context.Context, text string) (string, bool) {
	answer, asked, err := throughShim(ctx, text)
	switch {
	case err != nil:
		return err.Error(), false
	case asked != "":
		return "the engine was asked: " + clip(asked, 60), false
	}
	return answer, strings.HasPrefix(answer, "HTTP/1.1 4")
}

// throughShim sends bytes to a docker-shim, and gives the first line of its answer and what its engine was asked.
func throughShim(ctx context.Context, text string) (line, asked string, err error) {
	dir, err := os.MkdirTemp("", "e2e-shim-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	engine, err := net.Listen("unix", filepath.Join(dir, "engine.sock"))
	if err != nil {
		return "", "", err
	}
	defer engine.Close()
	heard := make(chan string, 16)
	go func() { _ = http.Serve(engine, recorder(heard)) }() //nolint:gosec // ends with its listener
	socket := filepath.Join(dir, "shim.sock")
	program, err := world.Program("docker-shim")
	if err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, program, "--listen", socket, "--engine", "unix://"+filepath.Join(dir, "engine.sock"), "--container", "codeforge-sandbox")
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	answer, err := exchange(socket, text)
	if err != nil {
		return "", "", err
	}
	select {
	case asked = <-heard:
	case <-time.After(50 * time.Millisecond):
	}
	line, _, _ = strings.Cut(answer, "\r\n")
	return line, asked, nil
}

// recorder is an engine that answers a ping, and tells what else it was asked.
func recorder(heard chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			w.Header().Set("Api-Version", "1.41")
			w.Header().Set("Ostype", "linux")
			return
		}
		heard <- r.Method + " " + r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"Id": "`+strings.Repeat("b2", 32)+`"}`)
	})
}

// exchange sends text to a unix socket and reads all that comes back.
func exchange(socket, text string) (string, error) {
	var c net.Conn
	var err error
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err = net.Dial("unix", socket); err == nil {
			break
		}
		if time.Now().After(end) {
			return "", err
		}
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }()
	out, _ := io.ReadAll(io.LimitReader(c, 64<<10))
	if len(out) == 0 {
		return "cut", nil
	}
	return string(out), nil
}
