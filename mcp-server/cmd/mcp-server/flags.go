package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/mtls"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/sandboxfleet"
)

// flagValues is the command line.
type flagValues struct {
	listen  []string
	sandbox func(context.Context) (net.Conn, error)
	// follow, if not nil, follows the sandboxes of a cluster. identity is the certificate for connections to them.
	follow   func(context.Context, func([]sandboxfleet.Place)) error
	identity *mtls.Identity
	proxy    string // address of the control API of the proxy that the sandboxes of a cluster share, or empty
	control  string
	skills   string
	socket   string
	history  string // folder of the stored runs and of the copy of shared skills, or empty
	pins     string // folder of the accepted tools
	tenants  string // folder of the tenants' skills
	ownerUID int
	drain    time.Duration
}

// parseFlags parses the command line and reports all mistakes together.
func parseFlags(args []string, getenv func(string) string, stderr io.Writer) (flagValues, error) {
	var f flagValues
	var listen, also, sandbox, identity string
	set := flag.NewFlagSet("mcp-server", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&listen, "listen", "", "address of the MCP endpoint, host:port")
	set.StringVar(&also, "also-listen", "", "a second address")
	set.StringVar(&sandbox, "sandbox", "", "unix:SOCKET of sandboxd, docker:SOCKET:CONTAINER of docker-shim and the "+
		"sandbox, or kubernetes:NAMESPACE/SERVICE")
	set.StringVar(&identity, "identity", "", "directory of the certificate to show sandboxes of a cluster, with its key "+
		"and authority")
	set.StringVar(&f.proxy, "proxy", "", "address of the control API of a proxy that the sandboxes of a cluster share")
	set.DurationVar(&f.drain, "drain", drainTime, "how long running calls may go on after a signal to end")
	set.StringVar(&f.control, "control", "", "socket of the proxy's control API")
	set.StringVar(&f.skills, "skills", "", "directory of the skills")
	set.StringVar(&f.tenants, "tenants", "", "folder of the skills of the clients of MCP_TOKENS_FILE")
	set.StringVar(&f.socket, "socket", "",
		"unix socket that serves the endpoint, and the operator's API, to its owner without a token")
	set.StringVar(&f.history, "history", "", "folder to keep runs in, as HISTORY says; without it, runs are not kept")
	set.StringVar(&f.pins, "pins", "", "folder of the tools of MCP servers that the user has accepted; without it, they "+
		"are forgotten at the end")
	set.IntVar(&f.ownerUID, "owner-uid", os.Getuid(), "user whose connections need no token, beside root")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	var problems []error
	if set.NArg() > 0 {
		problems = append(problems, fmt.Errorf("unexpected argument %q", set.Arg(0)))
	}
	for _, a := range []string{listen, also} {
		if a != "" {
			f.listen = append(f.listen, a)
		}
	}
	if len(f.listen) == 0 && f.socket == "" {
		problems = append(problems, errors.New("--listen or --socket is required"))
	}
	inCluster := strings.HasPrefix(sandbox, "kubernetes:")
	if f.control == "" && !inCluster {
		problems = append(problems, errors.New("--control is required"))
	}
	if f.proxy != "" && !inCluster {
		problems = append(problems, errors.New("--proxy: want --sandbox kubernetes:NAMESPACE/SERVICE with it"))
	}
	if f.skills == "" {
		problems = append(problems, errors.New("--skills is required"))
	}
	var err error
	if inCluster {
		err = f.setCluster(strings.TrimPrefix(sandbox, "kubernetes:"), identity, getenv)
	} else {
		f.sandbox, err = newDialer(sandbox)
	}
	if err != nil {
		problems = append(problems, err)
	}
	return f, errors.Join(problems...)
}

// setCluster sets up finding and reaching the sandboxes of a cluster.
func (f *flagValues) setCluster(name, identity string, getenv func(string) string) error {
	namespace, service, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || service == "" || f.control != "" || identity == "" {
		return fmt.Errorf("--sandbox kubernetes:%s: want kubernetes:NAMESPACE/SERVICE, with --identity and without --control",
			name)
	}
	slices, err := sandboxfleet.InCluster(getenv, namespace, service)
	if err != nil {
		return err
	}
	slices.Shared = f.proxy != ""
	f.follow = slices.Follow
	f.identity, err = mtls.Load(identity)
	return err
}

func newDialer(sandbox string) (func(context.Context) (net.Conn, error), error) {
	kind, socket, _ := strings.Cut(sandbox, ":")
	switch {
	case socket == "":
	case kind == "unix":
		return func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}, nil
	case kind == "docker":
		if socket, container, _ := strings.Cut(socket, ":"); socket != "" && container != "" {
			return newExecDialer(socket, container), nil
		}
	}
	return nil, fmt.Errorf("--sandbox %q: want unix:SOCKET, docker:SOCKET:CONTAINER or kubernetes:NAMESPACE/SERVICE",
		sandbox)
}

// checkHealth is `mcp-server health`.
func checkHealth(ctx context.Context, args []string, stderr io.Writer) error {
	set := flag.NewFlagSet("mcp-server health", flag.ContinueOnError)
	set.SetOutput(stderr)
	listen := set.String("listen", "127.0.0.1:8080", "address of the MCP endpoint")
	stay := set.Duration("linger", 0, "keep checking for this long")
	if err := set.Parse(args); err != nil {
		return err
	}
	return health.Check(ctx, *stay, func(ctx context.Context) error { return endpoint.CheckHealth(ctx, *listen) })
}

// checkSettings is `mcp-server settings`, which Compose runs first.
func checkSettings(getenv func(string) string) error {
	_, err := settings.Parse(getenv)
	// Compose would take such a text for the name of a volume, even of one that belongs to CodeForge.
	if p := getenv("SANDBOX_PROGRAMS"); p != "" && p[0] != '.' && p[0] != '~' && !strings.ContainsAny(p, `/\`) {
		err = errors.Join(err, fmt.Errorf("SANDBOX_PROGRAMS: %q; want in Docker an absolute path, or one that begins with "+
			"./", p))
	}
	if err != nil {
		return fmt.Errorf("settings (.env and the environment):\n%w", err)
	}
	return nil
}
