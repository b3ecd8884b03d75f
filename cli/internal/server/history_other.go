//go:build !linux

package server

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// History returns an error: embedded mode needs Linux.
func History(statedir.Dir, string) (operatorapi.Client, func(), error) {
	return operatorapi.Client{}, nil, errors.New("stored runs can only be read while CodeForge runs: start it with " +
		"codeforge up")
}
