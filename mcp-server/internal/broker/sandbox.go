package broker

import (
	"bufio"
	"cmp"
	"context"
	_ "embed" // start.py
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// launchTime bounds each request to sandboxd and the proxy during a launch.
	launchTime = 15 * time.Second
	// unwindTime bounds each step of freeing a slot.
	unwindTime = 10 * time.Second
	// lifeTime is how long a server's registration at the proxy is valid: longer than any server lives.
	lifeTime = 365 * 24 * time.Hour
	// installTime bounds an installation.
	installTime = 10 * time.Minute
)

// BridgeLauncher launches bridges in server slots. The order is the fence, as for runs (package execution): lease a
// slot, register the server at the proxy, run the bridge, end the registration, and only then free the slot.
type BridgeLauncher struct {
	Client  *sandboxapi.Client
	Control *proxyapi.Client
	// Registry is the address of the npm registry, or "".
	Registry string
	// Sent, if not nil, receives the requests of a server or an installation that Drain had not fetched when it ended. The
	// proxy's events may end before they report these requests.
	Sent func([]proxyapi.Exchange)
	// Database is the Postgres database that servers must not reach, or nil.
	Database *database.DB
}

// Launch implements Launcher.
func (l *BridgeLauncher) Launch(ctx context.Context, api proxyapi.API, tenant string) (Slot, error) {
	head := sandboxapi.ServerHead{Package: api.Server.PackageToInstall(), Folders: api.Server.Folders}
	s, err := l.leaseAndOpen(ctx, api, head, proxyapi.Registration{
		Run: proxyapi.ServerPrefix + api.Name, Tenant: tenant, APIs: []string{api.Name},
		Deadline: time.Now().Add(lifeTime),
	})
	if err != nil {
		return nil, err // not a nil *sandboxSlot, which would be a non-nil Slot
	}
	return s, nil
}

// leaseAndOpen leases a slot, registers it, and starts its program.
func (l *BridgeLauncher) leaseAndOpen(
	ctx context.Context, api proxyapi.API, head sandboxapi.ServerHead, reg proxyapi.Registration,
) (_ *sandboxSlot, err error) {
	asking, cancel := context.WithTimeout(ctx, launchTime)
	defer cancel()
	// Not ctx: if it ended before the lease arrived, the slot would stay taken.
	leasing, cancelLease := context.WithTimeout(context.WithoutCancel(ctx), launchTime)
	defer cancelLease()
	lease, err := l.Client.AcquireServer(leasing)
	if errors.Is(err, sandboxapi.ErrBusy) {
		return nil, ErrFull
	}
	if err != nil {
		return nil, err
	}
	// The program outlives this call, so ctx must not end its stream; Stop does.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &sandboxSlot{launcher: l, api: api, lease: lease, end: end}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	reg.Generation, reg.Database = lease.Generation, l.Database.ResolvePostgres(asking)
	if err := l.Control.RegisterRun(asking, lease.Slot, reg); err != nil {
		return nil, fmt.Errorf("registering the server: %w", err)
	}
	// The start itself is bounded. After it, asking's end must not stop the program any more.
	stop := context.AfterFunc(asking, end)
	s.stream, err = l.Client.StartServer(life, lease.Generation, head)
	if !stop() && err == nil {
		err = asking.Err()
	}
	if errors.Is(err, sandboxapi.ErrNotInstalled) {
		return nil, ErrNotInstalled
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Install implements Launcher.
func (l *BridgeLauncher) Install(ctx context.Context, api proxyapi.API, progress func(string)) error {
	return l.installPackage(ctx, api, api.Server.PackageToInstall(), api.Server.Registry, progress)
}

// InstallForCode installs packages of one kind that code imports, in the slot of an MCP server. An empty registry means
// the npm registry of the settings.
func (l *BridgeLauncher) InstallForCode(ctx context.Context, pins []string, registry string) error {
	// No API has a name with a $.
	api := proxyapi.API{Name: "$packages"}
	return l.installPackage(ctx, api, sandboxapi.PackageSet(pins), registry, func(string) {})
}

func (l *BridgeLauncher) installPackage(
	ctx context.Context, api proxyapi.API, pkg, registry string, progress func(string),
) error {
	if registry = cmp.Or(registry, l.Registry); registry == "" {
		return errors.New("no package registry is configured: codeforge mcp add and codeforge package add write that of " +
			"npm into the files of apis/; PACKAGE_REGISTRY in .env is for all packages, from the next start on")
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	head := sandboxapi.ServerHead{Package: pkg, Install: true, Registry: registry}
	s, err := l.leaseAndOpen(ctx, api, head, proxyapi.Registration{
		Run: proxyapi.InstallPrefix + api.Name, Install: true, Deadline: time.Now().Add(installTime),
	})
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	lines := bufio.NewScanner(s.stream)
	// A line beyond the buffer ends the scan, not the installation: the rest is discarded below.
	lines.Buffer(nil, bridgewire.MaxLog)
	last := ""
	for lines.Scan() {
		if last = cleanText(lines.Text()); last != "" {
			progress(last)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	if _, err := io.Copy(io.Discard, s.stream); err != nil {
		return err
	}
	exit, err := s.stream.Exit()
	if err != nil {
		return err
	}
	switch {
	case exit.Reason == sandboxapi.Exited && exit.Code == 0:
		return nil
	case exit.Detail == "":
		exit.Detail = fmt.Sprintf("the installation ended with exit code %d: %s", exit.Code, last)
	}
	return errors.New(cleanText(exit.Detail) + s.fetchBlockReason(ctx))
}

// fetchBlockReason returns the proxy's explanation why an installation could not reach the package registry, or "".
func (s *sandboxSlot) fetchBlockReason(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, unwindTime)
	defer cancel()
	receipt, err := s.Drain(ctx, proxyapi.Cause{})
	if err != nil {
		return ""
	}
	var all strings.Builder
	for _, h := range receipt.Hints {
		all.WriteString("; " + h.Text)
	}
	for _, e := range receipt.Exchanges {
		if e.Status == http.StatusNotFound {
			all.WriteString("; the registry has no such package or version")
			break
		}
	}
	return all.String()
}

type sandboxSlot struct {
	launcher *BridgeLauncher
	api      proxyapi.API
	lease    sandboxapi.Lease
	stream   *sandboxapi.Stream // nil if the program was not started
	end      context.CancelFunc
	closing  sync.Once
	closed   error
}

func (s *sandboxSlot) Read(p []byte) (int, error)  { return s.stream.Read(p) }
func (s *sandboxSlot) Write(p []byte) (int, error) { return s.stream.Write(p) }

func (s *sandboxSlot) Start() bridgewire.Start {
	spec, home := s.api.Server, sandboxapi.HomeDir(s.lease.Slot)
	start := bridgewire.Start{
		Env: map[string]string{}, URL: spec.URL, Headers: spec.Headers, Transport: spec.Transport,
		Protocol: spec.Protocol, ConnectTimeoutMS: spec.ConnectTimeoutMS,
	}
	for name, value := range spec.Env {
		start.Env[name] = resolveHome(value, home)
	}
	switch {
	case sandboxapi.IsPyPI(spec.Package):
		start.Command = pythonCommand(spec, sandboxapi.PackageDir(spec.PackageToInstall()))
	case spec.Package != "":
		start.Command = denoCommand(s.api, sandboxapi.PackageDir(spec.PackageToInstall()), home)
	case len(spec.Command) > 0:
		start.Command = slices.Concat(spec.Command, spec.Args)
	}
	for i, arg := range start.Command {
		start.Command[i] = resolveHome(arg, home)
	}
	return start
}

// resolveHome returns a value of a config.json with a leading ~/ replaced by the server's home. The home's path is
// unknown until the server has a slot.
func resolveHome(value, home string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok {
		return home + "/" + rest
	}
	return value
}

// starter is the Python script that runs the program of a package of PyPI.
//
//go:embed start.py
var starter string

// pythonCommand returns the command line of a package of PyPI. With -I and -S, the interpreter ignores its environment,
// the server's home, and files of site-packages that run at its start.
func pythonCommand(s *mcpserver.Settings, dir string) []string {
	name, _, program := mcpserver.CutPackage(strings.TrimPrefix(s.Package, "pypi:"))
	name, _, _ = strings.Cut(name, "[")
	return slices.Concat([]string{
		sandboxapi.PythonProgram, "-I", "-S", "-B", "-c", starter, dir + "/" + sandboxapi.PythonDir, name, program,
	}, s.Args)
}

// denoCommand returns the command line of a package: Deno with the narrowest flags. The boundary is the slot; the flags
// only catch a server's own mistakes earlier.
func denoCommand(api proxyapi.API, dir, home string) []string {
	argv := []string{
		"deno", "run", "--no-prompt", "--cached-only", "--no-config", "--lock=" + dir + "/deno.lock", "--frozen",
		"--no-code-cache", // the cache could not be stored
	}
	if slices.Contains(api.Server.Permissions, "run") { // a program that Deno starts has all rights of the slot anyway
		argv = append(argv, "--allow-all")
	} else {
		files := ""
		if len(api.Server.Folders) > 0 {
			files = ",/files,/folders" // the mounts decide what the server may write
		}
		argv = append(argv, "--allow-env", "--allow-sys", "--allow-read="+dir+","+home+files, "--allow-write="+home+files)
		if len(api.Domains) > 0 {
			argv = append(argv, "--allow-net="+strings.Join(api.Domains, ","))
		}
	}
	return slices.Concat(argv, []string{api.Server.Package}, api.Server.Args)
}

func (s *sandboxSlot) SetCalls(ctx context.Context, calls proxyapi.ServerCalls) error {
	return s.launcher.Control.SetCalls(ctx, s.lease.Slot, s.lease.Generation, calls)
}

func (s *sandboxSlot) Drain(ctx context.Context, cause proxyapi.Cause) (proxyapi.Receipt, error) {
	return s.launcher.Control.DrainExchanges(ctx, s.lease.Slot, s.lease.Generation, cause)
}

func (s *sandboxSlot) Stop() {
	if s.stream != nil {
		_ = s.stream.Close()
	}
	s.end()
}

func (s *sandboxSlot) Close() error {
	s.closing.Do(func() {
		s.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), unwindTime)
		defer cancel()
		// Unregistered before the slot is released: the next holder must not send with this server's rights.
		receipt, err := s.launcher.Control.UnregisterRun(ctx, s.lease.Slot, s.lease.Generation, proxyapi.Summary{})
		if s.launcher.Sent != nil && len(receipt.Exchanges) > 0 {
			s.launcher.Sent(receipt.Exchanges)
		}
		if errors.Is(err, proxyapi.ErrFenced) {
			err = nil // it was never registered, or the proxy restarted
		}
		// A new time limit: a slow proxy must not keep the slot from being released.
		ctx, cancel = context.WithTimeout(context.Background(), unwindTime)
		defer cancel()
		s.closed = errors.Join(err, s.launcher.Client.Release(ctx, s.lease.Generation))
	})
	return s.closed
}
