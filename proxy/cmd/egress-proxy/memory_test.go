package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// containerLimit is the memory of the proxy's container in docker-compose.yml, in bytes.
const containerLimit = 512 << 20

// tunnel serves CONNECT: all hosts are the upstream.
func tunnel(t *testing.T, upstream string) string {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		to, err := net.Dial("tcp", upstream)
		if err != nil {
			return
		}
		defer to.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, from); _ = to.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(from, to)
	})}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String()
}

// serveUpstream is a server for all hosts. /flood sends as much as the client takes.
func serveUpstream(t *testing.T, ca *testca.CA) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.URL.Path == "/flood" {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
			_, _ = io.WriteString(w, "ok")
		}),
		TLSConfig: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return ca.IssueLeaf(h.ServerName, h.ServerName, time.Now().Add(time.Hour))
		}},
	}
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// besieged is a proxy with nine slots: eight for hostile runs, and one for an honest run.
type besieged struct {
	*process
	https []string
	roots *x509.CertPool
}

const honestSlot = slot.ID(8)

func besiege(t *testing.T) *besieged {
	t.Helper()
	ca, err := testca.New("upstream")
	testkit.Must(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	testkit.Must(t, os.WriteFile(file, ca.PEM(), 0o600))
	env, files, https := filesOfSlots(t, honestSlot+1)
	env = append(env, "UPSTREAM_PROXY="+tunnel(t, serveUpstream(t, ca)), "UPSTREAM_CA_FILE="+file, "AUDIT=off")
	b := &besieged{process: start(t, "embedded", env, files...), https: https}
	for name, config := range map[string]string{
		"forms": `{"description": "d", "domains": ["forms.demo.test"], "restricted_methods": ["DELETE"]}`,
		"ruled": `{"description": "d", "domains": ["ruled.demo.test"], "rules": [{"path": "/x", "body": {"a": {"max": 1}}, "then": "allow"}]}`,
		"table": `{"description": "d", "domains": ["table.demo.test"], "credentials": {"TABLE": {"aws": {"access_key_id": "AKID",
			"secret_access_key": "a-secret-access-key", "region": "eu-central-1", "services": ["dynamodb"]}}}}`,
	} {
		dir := filepath.Join(b.dir, "apis", name)
		testkit.Must(t, os.MkdirAll(dir, 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	}
	testkit.Must(t, b.cmd.Process.Signal(syscall.SIGHUP))
	testkit.WaitFor(t, func() bool {
		c, err := b.client.FetchCatalog(t.Context())
		return err == nil && len(c.APIs) == 4
	})
	public, err := os.ReadFile(filepath.Join(b.dir, "public", authority.PublicFile))
	testkit.Must(t, err)
	b.roots = x509.NewCertPool()
	b.roots.AppendCertsFromPEM(public)
	return b
}

// browser is a client in a slot.
func (b *besieged) browser(id slot.ID) *http.Client {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", b.https[id])
		},
		TLSClientConfig: &tls.Config{RootCAs: b.roots}, Protocols: new(http.Protocols),
	}
	tr.Protocols.SetHTTP2(true)
	return &http.Client{Transport: tr}
}

// run registers a run and ends it after f.
func (b *besieged) run(ctx context.Context, id slot.ID, f func()) (proxyapi.Receipt, error) {
	generation := uint64(time.Now().UnixNano())
	r := proxyapi.Registration{Generation: generation, Run: "run", Deadline: time.Now().Add(time.Hour)}
	if err := b.client.RegisterRun(ctx, id, r); err != nil {
		return proxyapi.Receipt{}, err
	}
	f()
	return b.client.UnregisterRun(ctx, id, generation, proxyapi.Summary{})
}

// serveHonest is a run with three requests. It reports whether they were answered, and whether the receipt has them.
func (b *besieged) serveHonest(ctx context.Context) (why string) {
	rec, err := b.run(ctx, honestSlot, func() {
		c := b.browser(honestSlot)
		defer c.CloseIdleConnections()
		for _, url := range []string{"https://api.demo.test/", "https://forms.demo.test/", "https://ruled.demo.test/x"} {
			body := strings.NewReader(`{"a": 1}`)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(req)
			if err != nil {
				why = err.Error()
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(text) != "ok" {
				why = string(text)
			}
		}
	})
	if err != nil {
		return err.Error()
	}
	if why == "" && rec.Count.Exchanges != 3 {
		why = "the receipt lacks requests"
	}
	return why
}

var letters = bytes.Repeat([]byte("a"), 64<<10)

// endless is a body of which so many bytes come, and no end.
type endless struct {
	ctx  context.Context
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		<-e.ctx.Done()
		return 0, e.ctx.Err()
	}
	n := copy(p[:min(len(p), e.left)], letters)
	e.left -= n
	return n, nil
}

// TestMemory: under attacks that each took the proxy beyond the memory of its container, it stays within, and an honest
// run beside them gets its answers and its receipt. CODEFORGE_SIEGE is how long each attack takes.
// Promise: one-memory-budget
func TestMemory(t *testing.T) {
	length, _ := time.ParseDuration(os.Getenv("CODEFORGE_SIEGE"))
	length = cmp.Or(length, 8*time.Second)
	post := func(url, kind, auth string, size int) func(context.Context) *http.Request {
		return func(ctx context.Context) *http.Request {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, &endless{ctx, size})
			req.Header.Set("Content-Type", kind)
			req.Header.Set("Authorization", auth)
			return req
		}
	}
	const signature = "AWS4-HMAC-SHA256 Credential=TABLE/20200101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
	parsed := "[" + strings.Repeat(`{"a":1},`, 32000) + "1]"
	for _, c := range []struct {
		name    string
		runs    slot.ID
		request func(context.Context) *http.Request
	}{
		{"signed", 1, post("https://table.demo.test/", "application/json", signature, 8<<20)},
		{"forms", 8, post("https://forms.demo.test/", "application/x-www-form-urlencoded", "", 1<<20)},
		{"parsed", 8, func(ctx context.Context) *http.Request {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://ruled.demo.test/x", strings.NewReader(parsed))
			req.Header.Set("Content-Type", "application/json")
			return req
		}},
		{"unread", 8, func(ctx context.Context) *http.Request {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.demo.test/flood", nil)
			return req
		}},
		{"heads", 8, func(ctx context.Context) *http.Request {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.demo.test/flood", nil)
			req.Header.Set("X-Filler", strings.Repeat("a", 60<<10))
			return req
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := besiege(t)
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			var hostile sync.WaitGroup
			for id := range c.runs {
				hostile.Go(func() { b.attack(ctx, id, c.request) })
			}
			peak := int64(0)
			var watcher sync.WaitGroup
			watcher.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
					peak = max(peak, proc.MemoryOf(b.cmd.Process.Pid))
				}
			})
			served := 0
			for ctx.Err() == nil {
				if why := b.serveHonest(t.Context()); why != "" {
					t.Errorf("an honest run: %s", why)
				}
				served++
			}
			watcher.Wait()
			hostile.Wait()
			t.Logf("at most %d MiB, %d honest runs", peak>>20, served)
			if peak == 0 || peak > containerLimit {
				t.Errorf("the proxy took %d MiB", peak>>20)
			}
		})
	}
}

// attack sends 64 requests of a run at once, again and again, and reads no answer.
func (b *besieged) attack(ctx context.Context, id slot.ID, request func(context.Context) *http.Request) {
	_, _ = b.run(context.WithoutCancel(ctx), id, func() {
		c := b.browser(id)
		defer c.CloseIdleConnections()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for ctx.Err() == nil {
					resp, err := c.Do(request(ctx))
					if err == nil && resp.StatusCode == http.StatusOK {
						<-ctx.Done()
					}
					if err == nil {
						resp.Body.Close()
					}
				}
			})
		}
		all.Wait()
	})
}

// mostGrowth is how many bytes of resident memory may come with many runs. The collector's pace alone moves it by some
// MiB, so over the 2,000 runs of make test-all it allows 4 KiB of each.
const mostGrowth = 8 << 20

// TestGrowth verifies that the proxy keeps nothing of the runs that have ended.
// Promise: one-memory-budget
func TestGrowth(t *testing.T) {
	b := besiege(t)
	serve := func(runs int) {
		var all sync.WaitGroup
		for id := range honestSlot {
			all.Go(func() {
				for range runs / int(honestSlot) {
					rec, err := b.run(t.Context(), id, func() {
						c := b.browser(id)
						defer c.CloseIdleConnections()
						resp, err := c.Get("https://api.demo.test/")
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					})
					if err != nil || rec.Count.Exchanges != 1 {
						t.Errorf("%d exchanges in the receipt, %v", rec.Count.Exchanges, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	runs := testkit.ChooseRepeats(200, 2000)
	serve(runs / 2) // fills what is made once
	before := proc.MemoryOf(b.cmd.Process.Pid)
	serve(runs)
	after := proc.MemoryOf(b.cmd.Process.Pid)
	t.Logf("%d runs: %d to %d KiB", runs, before>>10, after>>10)
	if before == 0 || after-before > mostGrowth {
		t.Errorf("the memory grew by %d bytes a run", (after-before)/int64(runs))
	}
}
