package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// timedCalls prints the median of calls, and the times of 400 calls in all, one after the other and eight at once, in
// milliseconds. What call is stands before it.
const timedCalls = `
await call();
const each = [];
for (let i = 0; i < 300; i++) { const t = performance.now(); await call(); each.push(performance.now() - t); }
each.sort((a, b) => a - b);
const times = [each[150]];
for (const limit of [1, 8]) {
  const t = performance.now();
  let left = 400;
  await Promise.all(Array.from({ length: limit }, async () => { while (left-- > 0) await call(); }));
  times.push(performance.now() - t);
}
console.log(...times);
`

// The call of timedCalls, by CodeForge and through a gateway at an address.
const (
	callOurs    = `const call = () => mcp.warm.noop();`
	callGateway = `const call = async () => await (await fetch("http://%s/", { method: "POST", body: "{}" })).json();`
)

// gateway measures calls as programs without a sandbox make them: code in bare Deno asks a gateway over plain HTTP, which
// holds the SDK's client of the server. Nothing is checked, scrubbed or noted on the way.
func gateway(ctx context.Context, cfg Config, s *server, program string, col *bench.Collector) error {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(ctx, &mcp.CommandTransport{Command: exec.CommandContext(ctx, program, NoopServer)}, nil)
	if err != nil {
		return fmt.Errorf("starting a server directly: %w", err)
	}
	defer session.Close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args map[string]any
		err := json.NewDecoder(r.Body).Decode(&args)
		if err == nil {
			var res *mcp.CallToolResult
			if res, err = session.CallTool(r.Context(), &mcp.CallToolParams{Name: "noop", Arguments: args}); err == nil {
				err = json.NewEncoder(w).Encode(res)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	address := l.Addr().String()
	cmd := exec.CommandContext(ctx, cfg.Deno, "run", "--allow-net="+address, "-") //nolint:gosec // ours
	cmd.Stdin = strings.NewReader(fmt.Sprintf(callGateway, address) + timedCalls)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("calls through a gateway: %w", err)
	}
	theirs, err := floats(string(out))
	if err != nil || len(theirs) != 3 {
		return fmt.Errorf("calls through a gateway printed %q", out)
	}
	ours, err := s.numbers(ctx, callOurs+timedCalls)
	if err != nil || len(ours) != 3 {
		return fmt.Errorf("calls of a warm server: %v %w", ours, err)
	}
	one, eight, err := noopMany(ctx, session, 400)
	if err != nil {
		return err
	}
	col.Add("servers.gateway", ours[0]-theirs[0], "%.2f ms, through a plain gateway %.2f ms", ours[0], theirs[0])
	mine, sdk, plain := ours[1]/ours[2], one/eight, theirs[1]/theirs[2]
	col.Add("servers.busy", mine, "400 calls: %.0f ms one by one, %.0f ms at 8 at once", ours[1], ours[2])
	col.Add("servers.busy.sdk", mine/sdk, "%.2fx; the SDK on stdio %.2fx, through a plain gateway %.2fx", mine, sdk, plain)
	return nil
}

// noopMany is how long calls of the tool that does nothing take in all by the SDK's client, in milliseconds: one after
// the other, and eight at once.
func noopMany(ctx context.Context, session *mcp.ClientSession, calls int) (one, eight float64, err error) {
	var took [2]float64
	for i, limit := range []int{1, 8} {
		var callers sync.WaitGroup
		var next atomic.Int64
		errs := make([]error, limit)
		start := time.Now()
		for n := range limit {
			callers.Go(func() {
				for errs[n] == nil && next.Add(1) <= int64(calls) {
					_, errs[n] = session.CallTool(ctx, doNothing)
				}
			})
		}
		callers.Wait()
		took[i] = time.Since(start).Seconds() * 1e3
		if err := errors.Join(errs...); err != nil {
			return 0, 0, fmt.Errorf("calling a server directly: %w", err)
		}
	}
	return took[0], took[1], nil
}

// packaged is a package from npm whose start is measured, and one call of it.
const packaged = "@modelcontextprotocol/server-everything@2026.8.31"

var echo = &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "x"}}

const packagedCall = `const t = performance.now(); await mcp.packaged.echo({ message: "x" }); console.log(performance.now() - t);`

// packages measures the first call of a package that does not run, against the SDK starting it on the same Deno. It needs
// findRegistry returns npm's registry, and the settings with which CodeForge installs packages from it.
func findRegistry(ctx context.Context) (registry string, settings []string, err error) {
	out, err := exec.CommandContext(ctx, "npm", "config", "get", "registry").Output()
	if err != nil {
		return "", nil, errors.New("npm does not tell its registry")
	}
	at, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil || at.Hostname() == "" {
		return "", nil, errors.New("npm's registry is not a URL")
	}
	var private []string // the registry is the operator's word, wherever it is
	addresses, err := net.DefaultResolver.LookupIP(ctx, "ip4", at.Hostname())
	if err != nil {
		return "", nil, errors.New("npm's registry is not found")
	}
	for _, a := range addresses {
		private = append(private, a.String()+"/32")
	}
	settings = []string{
		"PACKAGE_REGISTRY=" + at.String(), "PACKAGE_REGISTRY_PRIVATE=" + strings.Join(private, ","),
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} { // the system's trust
		if value := os.Getenv(name); value != "" {
			settings = append(settings, name+"="+value)
		}
	}
	return at.String(), settings, nil
}

// the registry that npm names.
func packages(ctx context.Context, cfg Config, col *bench.Collector) error {
	registry, settings, err := findRegistry(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "codeforge-bench-deno-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env := append(os.Environ(), "DENO_DIR="+filepath.Join(dir, "deno"), "NPM_CONFIG_REGISTRY="+registry, "DENO_NO_UPDATE_CHECK=1")
	fetch := exec.CommandContext(ctx, cfg.Deno, "cache", "--no-config", "--no-lock", "npm:"+packaged) //nolint:gosec // ours
	fetch.Env, fetch.Dir = env, dir
	if err := fetch.Run(); err != nil {
		return errors.New("npm's registry does not give the package")
	}
	s, err := embedded(ctx, cfg, cfg.deno(), 2, map[string]string{
		"packaged": `{"description": "benchmark", "mcp": {"package": "npm:` + packaged + `", "state": "run"}}`,
	}, settings...)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.numbers(ctx, packagedCall); err != nil { // installs it
		return fmt.Errorf("installing the package: %w", err)
	}
	node, err := onNode(ctx, dir)
	if err != nil {
		return err
	}
	var ours, deno, npx []float64
	for range cfg.Rounds * cfg.Each {
		time.Sleep(settle)
		first, err := s.numbers(ctx, packagedCall)
		if err != nil || len(first) != 1 {
			return fmt.Errorf("the first call of a package: %v %w", first, err)
		}
		cmd := exec.CommandContext(ctx, cfg.Deno, "run", "--no-prompt", "--cached-only", "--no-config", "--no-lock", //nolint:gosec // ours
			"--allow-all", "npm:"+packaged)
		cmd.Env, cmd.Dir = env, dir
		time.Sleep(settle)
		_, start, err := noopDirect(ctx, cmd, echo, 1)
		if err != nil {
			return err
		}
		time.Sleep(settle)
		_, vendor, err := noopDirect(ctx, exec.CommandContext(ctx, "node", node), echo, 1) //nolint:gosec // ours
		if err != nil {
			return err
		}
		ours, deno, npx = append(ours, first[0]), append(deno, start), append(npx, vendor)
	}
	o, d, n := bench.Median(ours), bench.Median(deno), bench.Median(npx)
	col.Add("servers.package", o/n, "from code %.0f ms, the SDK starting it on Node %.0f ms", o, n)
	col.Add("servers.package.deno", o/d, "from code %.0f ms, the SDK starting it on Deno with Deno's caches %.0f ms", o, d)
	return nil
}

// onNode installs the package as npx does, and gives its program.
func onNode(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", packaged)
	if err := cmd.Run(); err != nil {
		return "", errors.New("npm does not install the package")
	}
	name, _, _ := strings.Cut(packaged[1:], "@")
	return filepath.EvalSymlinks(filepath.Join(dir, "node_modules", ".bin", "mcp-"+strings.TrimPrefix(name, "modelcontextprotocol/")))
}
