// Command egress-proxy is the only way out of the sandbox.
//
//	egress-proxy --mode embedded|gateway|pod|shared --apis DIR --ca-private DIR --ca-public DIR --control SOCKET
//	             --tokens DIR --credentials SOCKET --audit DIR [--listen ADDR --identity DIR]
//	             [--inside IP --address IP --publish ADDR]
//	egress-proxy migrate
//	egress-proxy health --control SOCKET [--linger TIME]
//	egress-proxy relay
//
// In embedded mode the listeners are inherited (LISTEN_FDS), one set per slot. In gateway mode the proxy installs the
// firewall of its container and listens itself; its source address identifies a connection's slot. In pod mode an init
// container has installed the rules, and mcp-server, in another pod, reaches the control API at --listen. In shared
// mode the proxy has a pod of its own and serves many pods with one slot each: it listens at --inside; they reach it at
// --address, and get the authority's certificate at --publish. Settings come from the environment (internal/settings).
// migrate makes the tables of PROXY_DATABASE_URL, which several proxies share. SIGHUP reloads apis/, SIGTERM and SIGINT
// stop cleanly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/stdiorelay"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// gcPercent trades a few megabytes for lower tail latency: the heap is small, and most of it is buffers in use. A large
// compiled catalog needs no more headroom than a small one: it becomes garbage only at a reload, and has few pointers.
const (
	gcPercent = 200
	gcRoom    = 4 << 20 // bytes of garbage between two collections
	gcLeast   = 50
)

// tuneCollector returns the memory that loading a catalog took to the system, and sets the collector's pace for the
// rest.
func tuneCollector() {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(min(gcPercent, max(gcLeast, int(100*gcRoom/m.HeapAlloc))))
}

// defaultMemory is the memory limit of the Go runtime if GOMEMLIMIT is not set, in bytes.
const defaultMemory = 400 << 20

// newBudget gives the buffers of requests five eighths of the memory that the runtime may use. The rest is for the
// catalog and for garbage. newBudget also sets approval.MaxHeldBytes aside for requests that wait for a person.
func newBudget() *membudget.Budget {
	limit := debug.SetMemoryLimit(-1) // reads the limit, which GOMEMLIMIT may have set
	if limit == math.MaxInt64 {
		limit = defaultMemory
		debug.SetMemoryLimit(limit)
	}
	b := membudget.New(limit / 8 * 5)
	b.OpenAccount("held requests").TryTake(approval.MaxHeldBytes)
	return b
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	debug.SetGCPercent(gcPercent)
	if err := runCommand(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "egress-proxy: "+err.Error())
		}
		health.HoldUntilStopped(ctx, err)
		os.Exit(1)
	}
}

// runCommand is the whole command. It returns nil after a clean stop.
func runCommand(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "health" {
		return checkProxyHealth(ctx, args[1:], stdout, stderr)
	}
	if len(args) == 1 && args[0] == "relay" {
		return stdiorelay.RelayStdio(ctx, credentialapi.ContainerSocket, os.Stdin, stdout)
	}
	if len(args) == 1 && args[0] == "migrate" {
		return shareddb.MigrateTables(ctx, getenv)
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	return serveEgress(ctx, o, getenv, stderr)
}

// The modes.
const (
	modeEmbedded = "embedded"
	modeGateway  = "gateway"
	modePod      = "pod"
	modeShared   = "shared"
)

// options are the command line.
type options struct {
	mode            string
	apis            string
	private, public string
	control         string
	tokens          string
	audit           string
	credentials     string
	listen          string
	identity        string
	inside, address netip.Addr // in shared mode
	publish         string
	profile         bool
	endpoint        uint16
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("egress-proxy", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.mode, "mode", "", "`embedded` (inherited listeners), gateway (a container between two networks) "+
		"pod (a sidecar) or shared (for many pods)")
	fs.StringVar(&o.apis, "apis", "apis", "`directory` of the APIs")
	fs.StringVar(&o.private, "ca-private", "", "`directory` of the authority's key")
	fs.StringVar(&o.public, "ca-public", "", "`directory` in which the authority's certificate is published")
	fs.StringVar(&o.control, "control", "", "unix `socket` of the control API")
	fs.StringVar(&o.tokens, "tokens", "", "`directory` of obtained tokens")
	fs.StringVar(&o.audit, "audit", "", "`directory` of the ledger of what left the machine")
	fs.StringVar(&o.credentials, "credentials", "", "unix `socket` for logins")
	fs.StringVar(&o.listen, "listen", "", "`address` of the control API for mcp-server in another pod, host:port")
	fs.StringVar(&o.identity, "identity", "", "`directory` of the certificate to show there, with its key and authority")
	fs.TextVar(&o.inside, "inside", netip.Addr{}, "shared: `address` to listen at")
	fs.TextVar(&o.address, "address", netip.Addr{}, "shared: `address` at which sandboxes reach the proxy")
	fs.StringVar(&o.publish, "publish", "", "shared: `address` where sandboxes get the authority's certificate, host:port")
	fs.BoolVar(&o.profile, "profile", false, "serve /debug/pprof on the control socket")
	endpoint := fs.Uint("endpoint", 0, "`port` of CodeForge's own MCP endpoint on loopback, which no API may reach")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if *endpoint > math.MaxUint16 {
		return o, fmt.Errorf("--endpoint %d: want a port", *endpoint)
	}
	o.endpoint = uint16(*endpoint)
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if !slices.Contains([]string{modeEmbedded, modeGateway, modePod, modeShared}, o.mode) {
		return o, fmt.Errorf("--mode %q: want embedded, gateway, pod or shared", o.mode)
	}
	all := o.inside.Is4() && o.address.Is4() && o.publish != "" && o.listen != ""
	some := o.inside.IsValid() || o.address.IsValid() || o.publish != ""
	if shared := o.mode == modeShared; shared && !all || !shared && some {
		return o, errors.New("--inside, --address and --publish: want all, with --listen, in shared mode, and only then")
	}
	if (o.listen == "") != (o.identity == "") {
		return o, errors.New("--listen and --identity: want both or neither")
	}
	required := map[string]string{"--ca-private": o.private, "--ca-public": o.public, "--control": o.control,
		"--tokens": o.tokens, "--credentials": o.credentials,
		"--audit": o.audit}
	for name, value := range required {
		if value == "" {
			return o, fmt.Errorf("%s is missing", name)
		}
	}
	return o, nil
}

// checkProxyHealth is the healthcheck: nil when the proxy is ready.
func checkProxyHealth(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("egress-proxy health", flag.ContinueOnError)
	fs.SetOutput(stderr)
	socket := fs.String("control", "", "unix `socket` of the control API")
	stay := fs.Duration("linger", 0, "keep checking for this long")
	if err := fs.Parse(args); err != nil {
		return err
	}
	c := proxyapi.NewClient(*socket)
	defer c.Close()
	err := health.Check(ctx, *stay, func(ctx context.Context) error {
		h, err := c.FetchHealth(ctx)
		if err == nil && !h.Ready {
			err = errors.New("not ready: " + h.Problem)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	return nil
}
