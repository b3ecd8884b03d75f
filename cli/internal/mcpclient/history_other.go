//go:build !linux

package mcpclient

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// OpenHistory returns an error: embedded mode needs Linux.
func OpenHistory(statedir.Dir, string) (operatorapi.Client, func(), error) {
	return operatorapi.Client{}, nil, errors.New("stored runs can only be read while CodeForge runs: start it with " +
		"codeforge up")
}
