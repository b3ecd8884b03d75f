// Package doctor looks at everything CodeForge needs on this machine and says what is wrong, and what to do about it.
//
// It changes nothing. Where embedded mode can run it starts one of its own, without any API, runs a line of code in it
// and ends it. The only requests it makes are one HEAD without any credential to each host of an active API.
package doctor

import (
	"context"
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

// Status is how a check ended.
type Status string

// The statuses. Only Fail makes the whole fail.
const (
	OK   Status = "ok"
	Warn Status = "warning"
	Fail Status = "failed"
	Skip Status = "skipped"
)

// Finding is what one check found.
type Finding struct {
	// Check names what was looked at, e.g. "Deno".
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Fix says what to do. Empty where nothing is wrong, or the text says it.
	Fix string `json:"fix,omitempty"`
	// minor marks a warning about something that works all the same.
	minor bool
}

// Config says where to look.
type Config struct {
	State statedir.Dir
	APIs  string
	// Dotenv is the path of .env.
	Dotenv string
	// Bin is the folder of the binaries, empty: this program's. Deno as codeforge up takes it.
	Bin, Deno string
	Port      int
	Environ   []string
	Getenv    func(string) string
	// Settings are the parsed ones; SettingsErr says why there are none.
	Settings    settings.Settings
	SettingsErr error
	// Server is where to ask when no supervisor runs on State: Docker's published port.
	Server server.Config
	// Container says that this is mcp-server's container: the machine cannot be seen from here.
	Container bool
	// Offline leaves out what needs the network.
	Offline bool
}

// checkTime bounds one group of checks.
const checkTime = 20 * time.Second

// group is a list of checks that belong together.
type group func(context.Context, Config) []Finding

// Examine does every check, calling on for each finding in order.
func Examine(ctx context.Context, c Config, on func(Finding)) {
	var all []Finding
	tell := func(list []Finding) {
		for _, f := range list {
			all = append(all, f)
			on(f)
		}
	}
	if c.Container {
		tell([]Finding{ok("codeforge", version.Version), skip("machine", "not seen from inside the container: run codeforge doctor on the host")})
		tell(bounded(ctx, c, running))
		return
	}
	for _, g := range []group{versions, machine, engine} {
		tell(bounded(ctx, c, g))
	}
	if embeddable(all) {
		tell(trial(ctx, c))
	}
	tell(ways(all))
	for _, g := range []group{running, port, configuration, files, authority, reach} {
		tell(bounded(ctx, c, g))
	}
}

func bounded(ctx context.Context, c Config, g group) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	return g(ctx, c)
}

// embeddable reports whether every check that was made lets embedded mode run here.
func embeddable(all []Finding) bool {
	for _, f := range all {
		switch f.Check {
		case "binaries", "Deno", "kernel", "seccomp", "bubblewrap", "namespaces", "interpreter":
			// Deno of another version is a warning that does not stop a start.
			if f.Status == Skip || f.Status == Fail || f.Status == Warn && !f.minor {
				return false
			}
		}
	}
	return true
}

// ways says whether there is any way to run CodeForge here.
func ways(all []Finding) []Finding {
	docker := false
	for _, f := range all {
		docker = docker || f.Check == "Docker" && f.Status == OK
	}
	if docker || embeddable(all) {
		return nil
	}
	return []Finding{fail("ways to run", "neither embedded mode nor Docker mode can run here", "do what stands above for one of them")}
}

func ok(check, text string) Finding   { return Finding{Check: check, Status: OK, Text: text} }
func skip(check, text string) Finding { return Finding{Check: check, Status: Skip, Text: text} }
func warn(check, text, fix string) Finding {
	return Finding{Check: check, Status: Warn, Text: text, Fix: fix}
}
func fail(check, text, fix string) Finding {
	return Finding{Check: check, Status: Fail, Text: text, Fix: fix}
}
