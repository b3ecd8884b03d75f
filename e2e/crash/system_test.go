package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// slots is the number of slots: one for each of two clients.
const slots = 2

// The daemons.
const (
	proxy   = "egress-proxy"
	sandbox = "sandboxd"
	server  = "mcp-server"
)

// system is the three daemons as `codeforge up` starts them. But each can be killed and restarted alone, as containers
// are, while `codeforge up` ends when one of its daemons does. mcp-server reaches the others through relays.
type system struct {
	*world.World // the client's side
	watch
	t        *testing.T
	dir      string
	upstream *upstream.Server
	canaries map[string]*canary.Canary
	daemons  map[string]*daemon
	relays   map[string]*relay
	control  *proxyapi.Client // not through the relay
}

// start makes a system that ends with the test.
func start(t *testing.T) *system {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root: the daemons are started as codeforge up does it for root")
	}
	s := &system{t: t, canaries: world.Canaries(), daemons: map[string]*daemon{}, relays: map[string]*relay{}}
	var err error
	s.dir, err = world.NewDir(world.Self, nil, nil)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	for name, mode := range map[string]os.FileMode{
		"run": 0o700, "relay": 0o700, "skills": 0o775 | os.ModeSetgid, "ca-private": 0o700, "ca-public": 0o755, "runs": 0o755, "sandboxd": 0o711, "tmp": 0o755, "tokens": 0o700,
	} {
		testkit.Must(t, os.Mkdir(s.at(name), 0o755))
		testkit.Must(t, os.Chmod(s.at(name), mode))
	}
	testkit.Must(t, os.Chown(s.at("skills"), 0, slot.GroupID))
	s.upstream, err = world.StartUpstream(s.at("upstream.pem"))
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, s.upstream.Close()) })
	apis := world.Standard(s.canaries, upstream.Embedded.Private.String()+"/32", s.at("upstream.pem"))
	testkit.Must(t, world.WriteAPIs(s.at("apis"), apis))
	s.compose()
	for _, name := range []string{proxy, sandbox, server} {
		s.start(name)
	}
	t.Cleanup(s.end)
	return s
}

func (s *system) at(elem ...string) string { return filepath.Join(append([]string{s.dir}, elem...)...) }

// compose sets how each daemon is started.
func (s *system) compose() {
	port, err := compose.FreePort()
	testkit.Must(s.t, err)
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	s.World = &world.World{Mode: world.Embedded, URL: "http://" + listen + "/mcp"}
	sockets, namespaces := networks(s.t)
	controlSocket, sandboxSocket := s.at("run", "control.sock"), s.at("run", "sandboxd.sock")
	s.control = proxyapi.NewClient(controlSocket)
	s.t.Cleanup(s.control.Close)
	s.daemons[proxy] = &daemon{files: sockets, args: []string{
		"--mode", "embedded", "--apis", s.at("apis"), "--ca-private", s.at("ca-private"), "--ca-public", s.at("ca-public"), "--control", controlSocket, "--tokens", s.at("tokens"), "--audit", s.at("audit"), "--credentials", s.at("credentials.sock"),
	}, ready: s.proxyReady}
	s.daemons[sandbox] = &daemon{files: namespaces, args: []string{
		"serve", "--mode", "embedded", "--socket", sandboxSocket, "--slots", fmt.Sprint(slots), "--servers", "0", "--warm", "1", "--deno", filepath.Join(filepath.Dir(filepath.Dir(world.Binary(sandbox))), "deno"),
		"--ca", s.at("ca-public", "ca.pem"), "--runs", s.at("runs"), "--skills", s.at("skills"), "--tmp", s.at("tmp"), "--state", s.at("sandboxd"),
	}, ready: func(ctx context.Context) error { return s.ask(ctx, "/v1/health", nil) }}
	s.daemons[server] = &daemon{args: []string{
		"--listen", listen, "--sandbox", "unix:" + s.at("relay", "sandboxd.sock"), "--control", s.at("relay", "control.sock"), "--skills", s.at("skills"),
	}, ready: func(ctx context.Context) error { return s.serverReady(ctx, "http://"+listen+"/healthz") }}
	s.relays[proxy] = &relay{t: s.t, watch: &s.watch, from: s.at("relay", "control.sock"), to: controlSocket}
	s.relays[sandbox] = &relay{t: s.t, watch: &s.watch, from: s.at("relay", "sandboxd.sock"), to: sandboxSocket, http2: true}
}

// end stops everything in order.
func (s *system) end() {
	for _, name := range []string{server, sandbox, proxy} {
		d := s.daemons[name]
		if d.cmd == nil {
			continue
		}
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.done:
		case <-time.After(testkit.Patience):
			s.t.Errorf("%s does not end", name)
			_ = d.cmd.Process.Kill()
			<-d.done
		}
	}
	for _, r := range s.relays {
		r.close()
	}
	if s.t.Failed() {
		for name, d := range s.daemons {
			log, _ := os.ReadFile(d.log)
			s.t.Logf("log of %s:\n%s", name, log[max(0, len(log)-6000):])
		}
	}
}

// daemon is one process.
type daemon struct {
	args  []string
	files []slot.File
	ready func(context.Context) error

	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a daemon and waits until it serves.
func (s *system) start(name string) {
	s.t.Helper()
	d := s.daemons[name]
	d.log = s.at(name + ".log")
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(s.t, err)
	defer log.Close()
	d.cmd = exec.Command(world.Binary(name), d.args...)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var names []string
	for _, f := range d.files {
		d.cmd.ExtraFiles = append(d.cmd.ExtraFiles, f.File)
		names = append(names, slot.FileName(f.Slot, f.Kind))
	}
	if len(names) > 0 {
		d.cmd.Env = append(d.cmd.Env, slot.ChildEnviron(names)...)
	}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	testkit.Must(s.t, d.cmd.Start())
	d.done = make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(d.done) }()
	if r := s.relays[name]; r != nil {
		r.open()
	}
	s.until("ready: "+name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return d.ready(ctx)
	})
}

// kill kills a daemon as in a crash, and breaks everything that others wait for from it.
func (s *system) kill(name string) {
	d := s.daemons[name]
	_ = d.cmd.Process.Kill()
	<-d.done
	d.cmd = nil
	if r := s.relays[name]; r != nil {
		r.close()
	}
}

// until retries until there is no error.
func (s *system) until(what string, try func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: not after a minute: %v", what, err)
}

func (s *system) proxyReady(ctx context.Context) error {
	h, err := s.control.FetchHealth(ctx)
	if err == nil && !h.Ready {
		err = fmt.Errorf("not ready: %s", h.Problem)
	}
	return err
}

func (s *system) serverReady(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("mcp-server answers %s", resp.Status)
	}
	return nil
}

// ask sends a request to sandboxd, not through the relay.
func (s *system) ask(ctx context.Context, path string, into any) error {
	c, err := connect(ctx, s.at("run", "sandboxd.sock"))
	if err != nil {
		return err
	}
	defer c.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandboxd"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("sandboxd answers %s", resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// allFree waits until both sandboxd and the proxy report that no slot is taken.
func (s *system) allFree() {
	s.t.Helper()
	s.until("all slots free", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var stats struct{ Slots, Leased, Quarantined int }
		if err := s.ask(ctx, "/v1/stats", &stats); err != nil {
			return err
		}
		metrics, err := s.control.FetchMetrics(ctx)
		if err != nil {
			return err
		}
		if stats.Slots != slots || stats.Leased+stats.Quarantined > 0 || !strings.Contains(metrics, "\ncodeforge_proxy_leases 0\n") {
			return fmt.Errorf("%+v, and the proxy says %s", stats, metrics)
		}
		return nil
	})
}

// networks makes the slots' network namespaces with the proxy's listeners in them, as codeforge up does. The test keeps
// the listeners open, so a connection made while the proxy is dead waits for the next one to accept it.
func networks(t *testing.T) (sockets, namespaces []slot.File) {
	t.Helper()
	for id := range slot.ID(slots) {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			listeners, ns, err := network(id)
			sockets, namespaces = append(sockets, listeners...), append(namespaces, ns)
			done <- err
		}()
		testkit.Must(t, <-done)
	}
	t.Cleanup(func() {
		for _, f := range append(sockets, namespaces...) {
			f.File.Close()
		}
	})
	return sockets, namespaces
}

// network moves the calling thread into a new namespace in which every address is local.
func network(id slot.ID) (sockets []slot.File, ns slot.File, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, ns, err
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, ns, err
	}
	ns = slot.File{Slot: id, Kind: slot.NetNS, File: file}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, ns, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, ns, err
	}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
	}); err != nil {
		return nil, ns, err
	}
	for kind, address := range map[slot.Kind]string{slot.HTTP: ":80", slot.HTTPS: ":443", slot.DNSTCP: ":53", slot.DNSUDP: ":53"} {
		f, err := listen(kind, address)
		if err != nil {
			return sockets, ns, err
		}
		sockets = append(sockets, slot.File{Slot: id, Kind: kind, File: f})
	}
	return sockets, ns, nil
}

// listen opens a socket in the calling thread's namespace.
func listen(kind slot.Kind, address string) (*os.File, error) {
	if kind == slot.DNSUDP {
		c, err := net.ListenPacket("udp4", address)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.(*net.UDPConn).File()
	}
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}
