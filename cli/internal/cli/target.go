package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// serverTarget selects the server for a command.
type serverTarget struct {
	flags      *pflag.FlagSet
	state, url *string
}

func targetFlags(fs *pflag.FlagSet) serverTarget {
	return serverTarget{
		flags: fs,
		state: stateFlag(fs),
		url:   fs.String("url", "", "`URL` of CodeForge, or docker://CONTAINER of mcp-server"),
	}
}

// newConfig completes the flags with the environment and .env. MCP_PORT there means a port of this machine.
func (t serverTarget) newConfig(e *Env) (mcpclient.Config, error) {
	w, err := readVariables(e)
	if err != nil {
		return mcpclient.Config{}, err
	}
	dir, err := findState(e, *t.state, t.hasFlag("state"))
	if err != nil {
		return mcpclient.Config{}, err
	}
	port := cmp.Or(w.getenv("MCP_PORT"), "8080")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 { // it becomes part of a URL that gets the token
		return mcpclient.Config{}, fmt.Errorf("MCP_PORT (.env or environment): %q; want a whole number from 1 to 65535", port)
	}
	c := mcpclient.Config{
		URL: *t.url, State: dir, Fallback: fmt.Sprintf("http://127.0.0.1:%s/mcp", port),
		Token: secret.New(w.getenv("MCP_AUTH_TOKEN")),
	}
	if t.hasFlag("state") {
		c.Fallback = "" // another server must not replace an explicit choice
		return c, nil
	}
	if c.URL == "" {
		// Not from .env: another person's folder must not choose who receives the token and runs the code.
		c.URL = e.Getenv("CODEFORGE_URL")
	}
	// There, mcp-server's own socket is the only way.
	if e.isInContainer() {
		c.Socket = operatorapi.ContainerSocket
		return c, nil
	}
	c.Docker = func(ctx context.Context) (string, error) {
		return docker.FindContainer(ctx, e.homeDir(), w.getenv("COMPOSE_PROJECT_NAME"))
	}
	return c, nil
}

func (t serverTarget) openSession(ctx context.Context, e *Env) (*mcpclient.Session, error) {
	c, err := t.newConfig(e)
	if err != nil {
		return nil, err
	}
	return mcpclient.Connect(ctx, c, mcpclient.Options{})
}

// useConnection returns a RunE that connects, calls run with the connection, and closes the connection if it can be
// closed.
func useConnection[C any](
	e *Env, connect func(context.Context, *Env) (C, error), run func(context.Context, C, []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		conn, err := connect(c.Context(), e)
		if err != nil {
			return err
		}
		if closer, ok := any(conn).(io.Closer); ok {
			defer closer.Close()
		}
		return run(c.Context(), conn, args)
	}
}

// connectOperator connects to mcp-server's socket.
func (t serverTarget) connectOperator(ctx context.Context, e *Env) (operatorapi.Client, error) {
	c, err := t.newConfig(e)
	if err != nil {
		return operatorapi.Client{}, err
	}
	op, place, local, err := mcpclient.ConnectOperator(ctx, c)
	if err == nil && !local {
		err = fmt.Errorf("%s is an MCP endpoint, which cannot answer this: run this where CodeForge runs, or "+
			"name docker://CONTAINER", place.Name())
	}
	return op, err
}

// connectProxy connects to the proxy's own socket.
func (t serverTarget) connectProxy(ctx context.Context, e *Env) (credentialapi.Client, error) {
	c, err := t.newConfig(e)
	if err != nil {
		return credentialapi.Client{}, err
	}
	client, _, err := mcpclient.ConnectCredentials(ctx, c)
	return client, err
}

// openApprovals connects to the proxy's approvals.
func (t serverTarget) openApprovals(ctx context.Context, e *Env) (approvalapi.Client, error) {
	proxy, err := t.connectProxy(ctx, e)
	return approvalapi.Client{Peer: credentialapi.Peer{Client: proxy.HTTP}, Paths: approvalapi.OperatorPaths}, err
}

// hasFlag reports whether a flag is on the command line.
func (t serverTarget) hasFlag(name string) bool { return t.flags.Changed(name) }
