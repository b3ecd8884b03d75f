package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// ConnectCredentials returns a client of the proxy's socket for credentials. It bypasses mcp-server.
func ConnectCredentials(ctx context.Context, c Config) (credentialapi.Client, Place, error) {
	none := credentialapi.Client{}
	place, err := LocateServer(ctx, c)
	if err != nil {
		return none, place, err
	}
	var dial func(context.Context) (net.Conn, error)
	switch {
	case place.State != nil:
		dial = DialCredentials(*place.State)
	case place.Container != "":
		name, err := docker.FindProxy(ctx, place.Container)
		if err != nil {
			return none, place, err
		}
		dial = func(ctx context.Context) (net.Conn, error) { return docker.DialProxy(ctx, name) }
	case place.Socket != "":
		return none, place, errors.New("the proxy cannot be reached from mcp-server's container: run codeforge on the host")
	default:
		return none, place, fmt.Errorf("no CodeForge of this folder runs, and %s does not serve credentials: run "+
			"codeforge on its machine, with --state or --url docker://CONTAINER", place.URL)
	}
	return CredentialsOver(dial), place, nil
}

// CredentialsOver returns a client of the socket that dial connects to.
func CredentialsOver(dial func(context.Context) (net.Conn, error)) credentialapi.Client {
	return credentialapi.Client{HTTP: &http.Client{Transport: &http.Transport{
		DisableCompression: true, ResponseHeaderTimeout: answerTimeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// DialCredentials returns a function that connects to the proxy's socket of a state directory.
func DialCredentials(d statedir.Dir) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		path, release, err := d.Socket(statedir.CredentialsSocket)
		if err != nil {
			return nil, err
		}
		defer release()
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
