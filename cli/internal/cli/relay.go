package cli

import (
	"context"

	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/internal/relay"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// relayCommand runs in mcp-server's container, for the codeforge of the host.
func relayCommand() command {
	return innerCommand(docker.RelayCommand, func(ctx context.Context, e *Env) error {
		return relay.Serve(ctx, operatorapi.ContainerSocket, e.Stdin, e.Stdout)
	})
}
