package main

import (
	"cmp"
	"context"
	"net"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/console"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func (d *daemon) openConsole(ctx context.Context, getenv func(string) string, about operatorapi.About) {
	mode := map[string]string{"1": "docker", "": "embedded"}[getenv("CODEFORGE_CONTAINER")]
	d.console = console.New(console.Config{
		About: about, Mode: cmp.Or(mode, "kubernetes"), Token: d.guard.IsToken, Settings: listShownSettings(getenv),
		Proxy: d.control, Catalog: d.catalog.Catalog, Ready: d.checkReady, Load: d.currentLoad,
		Servers: d.broker, Skills: d.skills, History: d.history, StopRun: d.executor.StopRun, Approvals: d.control,
		Logins: d.logins,
		Execute: func(ctx context.Context, r execution.RunRequest) (execution.Outcome, error) {
			return d.executor.Run(ctx, r, func(sandboxapi.Event) {})
		},
		Log: d.log, Stop: ctx.Done(),
	})
}

func (d *daemon) currentLoad() console.Load {
	// The two numbers are read one after the other, so the difference may be below zero for a moment.
	waiting := d.queue.CountWaiting()
	return console.Load{
		Slots: d.settings.Slots, Busy: max(0, d.executor.CountActive()-waiting), Waiting: waiting,
		Connected: slices.ContainsFunc(d.listHandlers(), (*transport.Handler).WasUsed),
	}
}

// consoleLogin returns a sign-in code for the console, and the port on which the endpoint listens.
func (d *daemon) consoleLogin() operatorapi.ConsoleLogin {
	l := operatorapi.ConsoleLogin{Code: d.console.NewSignInCode(), Port: d.settings.MCPPort}
	for _, a := range d.endpoint.ListAddrs() {
		if t, ok := a.(*net.TCPAddr); ok {
			l.Port = t.Port
			break
		}
	}
	return l
}

// harmless are the settings of mcp-server without private values.
var harmless = []string{
	"YOLO_MODE", "DEBUG_MODE", "MCP_PORT", "MCP_ALLOWED_HOSTS", "SANDBOX_SLOTS", "SANDBOX_WARM", "SANDBOX_MEMORY",
	"SANDBOX_SERVERS", "SANDBOX_SERVER_MEMORY", "SKILLS_READONLY", "OUTPUT_LIMIT", "TIMEOUT_DEFAULT", "TIMEOUT_MAX",
	"ANSWER_AFTER", "HISTORY", "LOG_FORMAT",
}

// listShownSettings returns the settings for the console. For a secret it shows only whether it is set.
func listShownSettings(getenv func(string) string) []console.Setting {
	var out []console.Setting
	for _, name := range harmless {
		value, def := getenv(name), settings.DefaultOf(name)
		value = cmp.Or(value, def)
		out = append(out, console.Setting{Name: name, Value: value, Default: value == def})
	}
	for _, name := range []string{"MCP_AUTH_TOKEN", "REDACTING_STRINGS"} {
		// A secret may also be in a file, named by the setting with _FILE.
		set := getenv(name) != "" || getenv(name+"_FILE") != ""
		one := console.Setting{Name: name, Value: "not set", Default: !set}
		if set {
			one.Value = "set, not shown"
		}
		out = append(out, one)
	}
	return out
}
