package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/slotport"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
	"golang.org/x/sys/unix"
)

// Descriptors that the inner process inherits.
const (
	planFD   = 3 // the plan as JSON
	statusFD = 4 // status as JSON lines
)

const (
	readyTimeout = 30 * time.Second
	readyPause   = 5 * time.Millisecond
	stopGrace    = 5 * time.Second
)

// innerStatus is the inner process's report to the outer one: ready, or the error that ended it.
type innerStatus struct {
	Ready   bool              `json:"ready,omitempty"`
	Catalog *proxyapi.Catalog `json:"catalog,omitempty"`
	Deno    string            `json:"deno,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// Supervise is the inner process: process 1 of its namespaces. It starts the daemons and reports when they are ready.
// It ends with ctx, or when a daemon ends or no longer answers.
func Supervise(ctx context.Context, environ []string, stderr io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("only codeforge up may run this command")
	}
	planFile, report := os.NewFile(planFD, "plan"), os.NewFile(statusFD, "status")
	// The daemons must not inherit files that were open when codeforge was started.
	if err := unix.CloseRange(planFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing inherited files: %w", err)
	}
	var p supervisorSetup
	if err := json.NewDecoder(planFile).Decode(&p); err != nil {
		return fmt.Errorf("reading the plan: %w", err)
	}
	_ = planFile.Close()
	s := &supervisor{plan: p, status: json.NewEncoder(report)}
	err := s.runDaemons(ctx, environ, stderr)
	if err != nil {
		_ = s.status.Encode(innerStatus{Error: err.Error()})
	}
	return err
}

// supervisor owns the daemons.
type supervisor struct {
	plan   supervisorSetup
	view   hostView
	status *json.Encoder
	log    io.Writer

	mu      sync.Mutex      // held while a daemon is started: reapOrphans must not take it for an orphan
	daemons []*childProcess // in starting order
}

func (s *supervisor) runDaemons(ctx context.Context, environ []string, stderr io.Writer) error {
	file, err := openLogFile(filepath.Join(s.plan.State, "log", "codeforge.log"), 0)
	if err != nil {
		return err
	}
	defer file.Close()
	s.log = file
	if !s.plan.Quiet {
		s.log = io.MultiWriter(file, stderr)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.reapOrphans(ctx)
	// Daemons end in reverse order: each uses the ones that started before it.
	defer s.stopDaemons()
	ready, err := s.startDaemons(ctx, environ)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.status.Encode(ready); err != nil {
		return fmt.Errorf("reporting to the outer process: %w", err)
	}
	hung := make(chan error, 1)
	ended := make(chan struct{}) // closed when the watch or ctx ends
	go func() {
		hung <- watchDaemons(ctx, s.listProbes())
		close(ended)
	}()
	// The daemons share slots, leases and sockets, so the end of one ends all.
	if d := waitForFirst(ended, s.daemons...); d != nil {
		return d.Cause()
	}
	return <-hung
}

// startDaemons starts the daemons in order, each after the one before it is ready.
func (s *supervisor) startDaemons(ctx context.Context, environ []string) (innerStatus, error) {
	var err error
	p := s.plan
	if s.view, err = makeView(p); err != nil {
		return innerStatus{}, explainRefusal(err)
	}
	if err := s.chownFolders(); err != nil {
		return innerStatus{}, err
	}
	slots, err := makeSlotNets(slot.IDs(p.Slots, p.Servers))
	if err != nil {
		return innerStatus{}, explainRefusal(err)
	}
	// If a setting forbids bubblewrap, sandboxd would try again for readyTimeout, and cannot name the setting. It names
	// other causes itself.
	s.mu.Lock()
	err = tryBubblewrap(ctx)
	s.mu.Unlock()
	if errors.Is(err, errForbidden) {
		return innerStatus{}, err
	}
	ask, err := answerPorts(slots, s.log)
	if err != nil {
		return innerStatus{}, err
	}
	defer ask.Close()
	proxyFiles, sandboxFiles := inheritedFiles(slots)
	proxyFiles = append(proxyFiles, slot.File{Kind: slot.Ports, File: ask})
	proxyEnv, sandboxEnv, serverEnv := daemonEnvirons(p.withSlotCounts(environ))
	if serverEnv, err = s.shareFiles(ctx, serverEnv); err != nil {
		return innerStatus{}, err
	}
	steps := []struct {
		daemon daemonConfig
		ready  func(context.Context) error
	}{
		{daemonConfig{Name: "egress-proxy", Args: proxyArgs(p, s.view), Env: proxyEnv, Files: proxyFiles}, s.proxyReady},
		{daemonConfig{Name: "sandboxd", Args: sandboxArgs(p, s.view), Env: sandboxEnv, Files: sandboxFiles}, s.sandboxReady},
		{daemonConfig{Name: "mcp-server", Args: serverArgs(p, s.view), Env: serverEnv, User: s.serverUser()}, s.serverReady},
	}
	for _, step := range steps {
		step.daemon.Path, step.daemon.Log = s.view.Path("bin", step.daemon.Name), s.log
		d, err := s.launchDaemon(step.daemon)
		if err != nil {
			return innerStatus{}, err
		}
		if err := s.awaitReady(ctx, d, step.ready); err != nil {
			return innerStatus{}, err
		}
	}
	// The proxy has inherited the sockets, so the supervisor no longer needs its copies.
	for _, sl := range slots {
		sl.CloseSockets()
	}
	return s.readyStatus(ctx)
}

// answerPorts opens further ports in the namespaces of slots, on request over the returned socket. It keeps the
// namespaces open until the supervisor ends.
func answerPorts(slots []slotNet, log io.Writer) (*os.File, error) {
	ask, answer, err := slotport.NewPair()
	if err != nil {
		return nil, err
	}
	go func() {
		err := slotport.ServeRequests(answer, func(id slot.ID, port uint16) (*os.File, error) {
			i := slices.IndexFunc(slots, func(s slotNet) bool { return s.ID == id })
			if i < 0 {
				return nil, errors.New("there is no such slot")
			}
			return slots[i].Listen(port)
		})
		if err != nil {
			fmt.Fprintf(log, "codeforge: %v\n", err)
		}
	}()
	return ask, nil
}

func (s *supervisor) launchDaemon(c daemonConfig) (*childProcess, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := startDaemon(c)
	if err == nil {
		s.daemons = append(s.daemons, d)
	}
	return d, err
}

// chownFolders gives the folders of the state directory to the users that work in them.
func (s *supervisor) chownFolders() error {
	type folder struct {
		name     string
		uid, gid int
		mode     os.FileMode
	}
	list := []folder{
		{"run", slot.ServerUID, slot.GroupID, 0o700},
		{"skills", 0, slot.GroupID, 0o775 | os.ModeSetgid},
		{"pins", slot.ServerUID, slot.GroupID, 0o700},
		{"history", slot.ServerUID, slot.GroupID, 0o700},
		{"tenants", slot.ServerUID, slot.GroupID, 0o700},
		{"ca-public", 0, 0, 0o755},
		{"runs", 0, 0, 0o755},
		{"packages", 0, 0, 0o755},
		{"sandboxd", 0, 0, 0o711},
	}
	for _, f := range list {
		path := filepath.Join(s.plan.State, f.name)
		if s.plan.Privileged {
			if err := os.Lchown(path, f.uid, f.gid); err != nil {
				return fmt.Errorf("preparing the state directory: %w", err)
			}
		}
		if err := os.Chmod(path, f.mode); err != nil {
			return fmt.Errorf("preparing the state directory: %w", err)
		}
	}
	return nil
}

// serverUser returns mcp-server's user, in the group that owns the skills. Nil: the supervisor's user.
func (s *supervisor) serverUser() *syscall.Credential {
	if !s.plan.Privileged {
		return nil
	}
	return &syscall.Credential{Uid: slot.ServerUID, Gid: slot.GroupID}
}

// chownSocket lets mcp-server connect to a socket that root's proxy created. sandboxd does so itself for its socket.
func (s *supervisor) chownSocket(socket string) error {
	if !s.plan.Privileged {
		return nil
	}
	return os.Lchown(s.view.Path("run", socket), slot.ServerUID, slot.GroupID)
}

// awaitReady asks a daemon repeatedly until it is ready, it ends, or readyTimeout has passed.
func (s *supervisor) awaitReady(ctx context.Context, d *childProcess, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for why := error(nil); ; {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		late := ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
		if why == nil || !late { // a timeout is not the cause
			why = err
		}
		select {
		case <-d.Done():
			return d.Cause()
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready after %s: %w", d.name, readyTimeout, why)
		case <-time.After(readyPause):
		}
	}
}

func (s *supervisor) proxyReady(ctx context.Context) error {
	c := proxyapi.NewClient(s.view.Path("run", statedir.ControlSocket))
	defer c.Close()
	h, err := c.FetchHealth(ctx)
	if err != nil {
		return err
	}
	if !h.Ready {
		return errors.New(h.Problem)
	}
	// The proxy makes the socket as root, and only now it exists.
	return s.chownSocket(statedir.ControlSocket)
}

func (s *supervisor) sandboxReady(ctx context.Context) error {
	h, err := s.sandboxHealth(ctx)
	if err != nil {
		return err
	}
	if !h.Ready {
		return errors.New(h.Problem)
	}
	return nil
}

func (s *supervisor) sandboxHealth(ctx context.Context) (sandboxapi.Health, error) {
	c := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.view.Path("run", statedir.SandboxSocket))
	}})
	defer c.Close()
	return c.Health(ctx)
}

func (s *supervisor) serverReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.plan.endpointURL()+"/readyz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

// readyStatus returns the status of the running system.
func (s *supervisor) readyStatus(ctx context.Context) (innerStatus, error) {
	c := proxyapi.NewClient(s.view.Path("run", statedir.ControlSocket))
	defer c.Close()
	catalog, err := c.FetchCatalog(ctx)
	if err != nil {
		return innerStatus{}, err
	}
	h, err := s.sandboxHealth(ctx)
	return innerStatus{Ready: true, Catalog: &catalog, Deno: h.Deno}, err
}

// stopDaemons ends the daemons, the last one first.
func (s *supervisor) stopDaemons() {
	for i := len(s.daemons) - 1; i >= 0; i-- {
		s.daemons[i].Stop(stopGrace)
	}
	for _, name := range []string{statedir.MCPSocket, statedir.SandboxSocket, statedir.ControlSocket} {
		_ = os.Remove(filepath.Join(s.plan.State, "run", name))
	}
}
