package embedded

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// shareTime is the interval at which the files of shared are checked.
const shareTime = time.Second

// shared lists the settings that name files for mcp-server, and the places of its copies in the view. Tokens are in the
// folder of the tenants, because no tenant has that name. The other copies are in memory and end with this process.
var shared = [...]struct{ name, folder, file string }{
	{"MCP_TOKENS_FILE", "tenants", "tokens.json"},
	{"DATABASE_CA_FILE", "", "database-ca.pem"},
	{"OIDC_CA_FILE", "", "oidc-ca.pem"},
	{"OIDC_INTROSPECTION_SECRET_FILE", "", "oidc-secret"},
}

// shareFiles copies the files of shared for mcp-server, whose user may be unable to read them. Until ctx ends, it
// copies a file again after a change. It returns mcp-server's environment with the copies' paths.
func (s *supervisor) shareFiles(ctx context.Context, environ []string) ([]string, error) {
	for _, f := range shared {
		for i, kv := range environ {
			source, ok := strings.CutPrefix(kv, f.name+"=")
			if !ok || source == "" {
				continue
			}
			to := s.view.Path(f.folder, f.file)
			environ[i] = f.name + "=" + to
			if err := s.shareFile(ctx, source, to); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return environ, nil
}

// shareFile copies a file now, and again after each change.
func (s *supervisor) shareFile(ctx context.Context, source, to string) error {
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
			// Lchown does not follow a link that mcp-server could have put there.
			err = os.Lchown(to, slot.ServerUID, slot.GroupID)
		}
		if err == nil {
			last = info
		}
		return err
	}
	if err := share(); err != nil {
		return err
	}
	go func() {
		for range timing.EachTick(ctx, shareTime) {
			_ = share() // retried at the next tick; mcp-server keeps its current copy
		}
	}()
	return nil
}
