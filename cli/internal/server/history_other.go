//go:build !linux

package server

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// History is for embedded mode, which is on Linux.
func History(statedir.Dir, string) (operatorapi.Client, func(), error) {
	return operatorapi.Client{}, nil, errors.New("what is kept of runs can only be read while CodeForge runs")
}
