package embedded

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// namesakesTime bounds the lookup of users, which may ask a directory on the network.
const namesakesTime = 2 * time.Second

// findSharedUIDs warns of users of this machine whose user id is mcp-server's or a slot's. They could read the memory
// and files of these parts of CodeForge. Only if root starts embedded mode do the parts have separate user ids.
func findSharedUIDs(ctx context.Context, p supervisorSetup) (warnings []string) {
	if !p.Privileged {
		return nil
	}
	args := []string{"passwd", strconv.Itoa(slot.ServerUID)}
	for _, id := range slot.IDs(p.Slots, p.Servers) {
		args = append(args, strconv.Itoa(id.UID()))
	}
	ctx, cancel := context.WithTimeout(ctx, namesakesTime)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "getent", args...).Output() // it fails if one id has no user
	// passwd(5): name, password, uid.
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(line, ":"); len(f) > 2 {
			warnings = append(warnings, fmt.Sprintf("the user %q of this machine has the user id %s, as a part of CodeForge "+
				"has: that user can read what it holds. Use Docker on a machine without that user, or start CodeForge as an "+
				"ordinary user", f[0], f[2]))
		}
	}
	return warnings
}
