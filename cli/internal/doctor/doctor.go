// Package doctor checks all that CodeForge needs on this machine, and explains how to fix problems.
//
// It leaves the user's files as they are. If embedded mode can run, it starts a temporary CodeForge without APIs, runs
// a line of code in it and stops it. If CodeForge runs, its proxy makes one HEAD request, without a credential, to each
// host of an active API, and to each server that gives the API credentials.
//
// RunAttacks instead tries every attack that needs no hostile server on the user's running CodeForge. These attacks
// reach no API and use no credential. They use names below .invalid, which have no owner (RFC 2606), addresses reserved
// for documentation, and the machine itself.
package doctor

import (
	"context"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Status is the result of a check.
type Status string

// The statuses. Only Fail makes doctor fail.
const (
	OK   Status = "ok"
	Warn Status = "warning"
	Fail Status = "failed"
	Skip Status = "skipped"
)

// Finding is the finding of one check.
type Finding struct {
	// Check is the name of the check, e.g. "Deno".
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	// Fix is the remedy. It is empty if there is no problem or Text already explains it.
	Fix string `json:"fix,omitempty"`
	// minor marks a warning about something that works anyway.
	minor bool
}

// Config configures the checks.
type Config struct {
	State statedir.Dir
	// OwnAPIs means that the user named the folder of APIs. The running CodeForge may use another one.
	OwnAPIs bool
	// Dotenv is the path of .env.
	Dotenv string
	// Bin is the folder of the binaries. Empty: the folder of this program.
	Bin string
	// Deno is the interpreter, as in embedded.Config.
	Deno string
	// Python is the Python interpreter, as in embedded.Config.
	Python  string
	Port    int
	Environ []string
	// Project is the name of Docker's stack, or "".
	Project string
	// Settings are the parsed settings. SettingsErr is the reason if they could not be parsed.
	Settings    settings.Settings
	SettingsErr error
	// Problems are the findings of codeforge check. Catalog has the APIs; it is nil if their folder is missing.
	Problems []proxyapi.InspectedProblem
	Catalog  *catalog.Catalog
	// Server is the server to ask if no supervisor runs on State: Docker's published port.
	Server mcpclient.Config
	// Container means that this is mcp-server's container, from which the machine cannot be checked.
	Container bool
	// Offline skips checks that need the network.
	Offline bool
}

// checkTime bounds one group of checks.
const checkTime = 20 * time.Second

// checkGroup is a list of related checks.
type checkGroup func(context.Context, Config) []Finding

// RunChecks runs every check and calls on for each finding, in order.
func RunChecks(ctx context.Context, c Config, on func(Finding)) {
	var all []Finding
	report := func(list []Finding) {
		for _, f := range list {
			all = append(all, f)
			on(f)
		}
	}
	runAll := func(groups ...checkGroup) {
		for _, g := range groups {
			bounded, cancel := context.WithTimeout(ctx, checkTime)
			report(g(bounded, c))
			cancel()
		}
	}
	if c.Container {
		report([]Finding{
			newOK("codeforge", version.Version),
			newSkip("machine", "not visible from inside the container: run codeforge doctor on the host"),
		})
		runAll(checkRunning, checkAlarms, checkServers, checkDatabase, checkOutside)
		return
	}
	runAll(checkVersions, checkMachine, checkEngine)
	// A trial that cannot succeed would only repeat the findings above.
	if canEmbed(all) {
		report(runTrial(ctx, c))
	}
	report(checkModes(all))
	runAll(checkRunning, checkAlarms, checkServers, checkDatabase, checkPort, checkConfiguration, checkFiles, checkOutside)
}

// canEmbed reports whether the findings so far allow embedded mode here.
func canEmbed(all []Finding) bool {
	for _, f := range all {
		switch f.Check {
		case "binaries", "Deno", "kernel", "seccomp", "bubblewrap", "namespaces", "interpreter":
			// Another version of Deno is only a warning and does not prevent a start.
			if f.Status == Skip || f.Status == Fail || f.Status == Warn && !f.minor {
				return false
			}
		}
	}
	return true
}

// checkModes fails if neither embedded mode nor Docker mode can run here.
func checkModes(all []Finding) []Finding {
	docker := false
	for _, f := range all {
		docker = docker || f.Check == "Docker" && f.Status == OK
	}
	if docker || canEmbed(all) {
		return nil
	}
	return []Finding{newFailure("modes", "neither embedded mode nor Docker mode can run here",
		"fix what is reported above for one of them")}
}

func newOK(check, text string) Finding   { return Finding{Check: check, Status: OK, Text: text} }
func newSkip(check, text string) Finding { return Finding{Check: check, Status: Skip, Text: text} }
func newWarning(check, text, fix string) Finding {
	return Finding{Check: check, Status: Warn, Text: text, Fix: fix}
}
func newFailure(check, text, fix string) Finding {
	return Finding{Check: check, Status: Fail, Text: text, Fix: fix}
}
