package embedded

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// tokensFile is the name of mcp-server's copy of MCP_TOKENS_FILE, in the folder of the tenants. No tenant has it.
const tokensFile = "tokens.json"

// tokensTime is how often MCP_TOKENS_FILE is looked at.
const tokensTime = time.Second

// shareTokens gives mcp-server, which may be a user who cannot read it, a copy of MCP_TOKENS_FILE, and again when that
// has changed, until ctx ends. It returns mcp-server's environment with the copy's path.
func (s *supervisor) shareTokens(ctx context.Context, environ []string) ([]string, error) {
	source, to := "", s.view.Path("tenants", tokensFile)
	for i, kv := range environ {
		if value, ok := strings.CutPrefix(kv, "MCP_TOKENS_FILE="); ok && value != "" {
			source, environ[i] = value, "MCP_TOKENS_FILE="+to
		}
	}
	if source == "" {
		return environ, nil
	}
	var last os.FileInfo
	share := func() error {
		info, err := os.Stat(source)
		if err != nil || last != nil && os.SameFile(last, info) && last.ModTime().Equal(info.ModTime()) &&
			last.Size() == info.Size() {
			return err
		}
		text, err := os.ReadFile(source)
		if err == nil {
			err = atomicfile.Write(to, text, 0o600)
		}
		if err == nil && s.plan.Privileged {
			err = os.Lchown(to, slot.ServerUID, slot.GroupID)
		}
		if err == nil {
			last = info
		}
		return err
	}
	if err := share(); err != nil {
		return nil, fmt.Errorf("MCP_TOKENS_FILE: %w", err)
	}
	go func() {
		tick := time.NewTicker(tokensTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = share() // tried again; what mcp-server has stays in force
			}
		}
	}()
	return environ, nil
}
