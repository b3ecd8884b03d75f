package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// attackCase is one attempt. An attempt that could not be made counts as not held.
type attackCase struct {
	name, expected string
	// code runs in the sandbox and prints lines of {held, seen}. seconds is its time limit.
	code    string
	seconds float64
	// judge decides from the run's result.
	judge func(mcpclient.Result) (seen string, held bool)
	// do replaces code for an attack from outside the sandbox.
	do func(context.Context, attackTarget) (seen string, held bool)
}

// attackTarget is the CodeForge under attack.
type attackTarget struct {
	session *mcpclient.Session
	// url is the MCP endpoint, token its bearer token. Empty token: the endpoint requires none.
	url   string
	token secret.Value
	// host is a host of an active API, or empty. Connections to host end at the proxy, and no request is forwarded.
	host string
	// memory is the memory limit of a run, in bytes. Zero: unknown.
	memory int64
	// open means that YOLO_MODE is on: code has network permission for every host.
	open bool
}

// AttackOutcome is one row of the table.
type AttackOutcome struct {
	Name     string `json:"attack"`
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Held     bool   `json:"held"`
}

const attackTimeout = 90 * time.Second

// RunAttacks runs every attack against the CodeForge of c, one after the other, and calls on with each outcome.
func RunAttacks(ctx context.Context, c Config, on func(AttackOutcome)) error {
	if c.SettingsErr != nil {
		return c.SettingsErr
	}
	s, err := mcpclient.Connect(ctx, c.Server, mcpclient.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	t := attackTarget{
		session: s, url: c.Server.Fallback, token: c.Server.Token, host: findActiveHost(c.Catalog),
		memory: c.Settings.Memory, open: c.Settings.YOLO,
	}
	if c.Server.URL != "" {
		t.url = c.Server.URL
	} else if up, err := c.Server.State.ReadUp(); err == nil {
		t.url = up.Endpoint()
	}
	for _, a := range listAttacks(t) {
		if ctx.Err() != nil {
			break
		}
		seen, held := a.runAttack(ctx, t)
		on(AttackOutcome{Name: a.name, Expected: a.expected, Seen: seen, Held: held})
	}
	return ctx.Err()
}

// findActiveHost returns a host of an active API on port 443, or "".
func findActiveHost(cat *catalog.Catalog) string {
	for _, a := range cat.APIs() {
		for _, h := range a.Hosts {
			if a.Active && !strings.Contains(h.String(), "*") && h.Port() == 0 {
				return h.String()
			}
		}
	}
	return ""
}

func (a attackCase) runAttack(ctx context.Context, t attackTarget) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, attackTimeout)
	defer cancel()
	if a.do != nil {
		return a.do(ctx, t)
	}
	r, err := t.session.RunCode(ctx, mcpclient.Run{Code: a.code, Timeout: a.seconds})
	if err != nil {
		return "could not be tried: " + clipText(err.Error()), false
	}
	return a.judge(r)
}

// checkAllRefused evaluates the output of code about its attempts. There must be at least one, and all must have
// failed.
func checkAllRefused(r mcpclient.Result) (string, bool) {
	var seen []string
	for text := range strings.Lines(r.Output) {
		var v struct {
			Held *bool  `json:"held"`
			Seen string `json:"seen"`
		}
		if json.Unmarshal([]byte(text), &v) != nil || v.Held == nil {
			continue
		}
		if !*v.Held {
			return clipText(v.Seen), false
		}
		seen = append(seen, v.Seen)
	}
	// An uncaught refusal of Deno ended the program.
	if len(seen) == 0 && r.Failed && strings.Contains(r.Output, "NotCapable") {
		return "the interpreter refuses", true
	}
	if len(seen) == 0 {
		return "could not be tried: " + clipText(r.Output), false
	}
	return fmt.Sprintf("%d of %d refused", len(seen), len(seen)), true
}

// checkModuleNotLoaded holds if the program did not start, because a module is missing or unreadable.
func checkModuleNotLoaded(r mcpclient.Result) (string, bool) {
	for _, words := range []string{"Module not found", "Permission denied", "Requires read access"} {
		if r.Failed && strings.Contains(r.Output, words) {
			return strings.ToLower(words), true
		}
	}
	return "it was read", false
}

// checkNothingRead holds if the module did not load, or the imported text is empty.
func checkNothingRead(r mcpclient.Result) (string, bool) {
	const nothing = "nothing read"
	if strings.Contains(r.Output, `"held"`) {
		seen, held := checkAllRefused(r)
		if held {
			seen = nothing
		}
		return seen, held
	}
	if r.Exit == nil || r.Exit.Reason != sandboxapi.Exited || !r.Failed {
		return "could not be tried: " + clipText(r.Output), false
	}
	return nothing, true
}

// checkEndedBy holds if sandboxd ended the run for this reason.
func checkEndedBy(reason sandboxapi.Reason) func(mcpclient.Result) (string, bool) {
	return func(r mcpclient.Result) (string, bool) {
		if r.Exit == nil {
			return "not ended: " + clipText(r.Output), false
		}
		return "ended: " + string(r.Exit.Reason), r.Exit.Reason == reason
	}
}

// checkOutputBounded holds if CodeForge cut off a flood of output.
func checkOutputBounded(r mcpclient.Result) (string, bool) {
	return fmt.Sprintf("%d bytes shown", len(r.Output)), r.Exit != nil && len(r.Output) < 8<<20
}

// sendInitialize sends an initialize request to the endpoint and returns the status.
func sendInitialize(ctx context.Context, t attackTarget, token secret.Value, change func(*http.Request)) (int, error) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"codeforge-doctor","version":"1"}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	change(req)
	resp, err := mcpclient.NewHTTPClient(token).Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// newForbiddenAttack returns an attack whose initialize request must get status 403.
func newForbiddenAttack(name string, change func(*http.Request)) attackCase {
	return attackCase{name: name, expected: "403", do: func(ctx context.Context, t attackTarget) (string, bool) {
		status, err := sendInitialize(ctx, t, t.token, change)
		if err != nil {
			return "could not be tried: " + clipText(err.Error()), false
		}
		return fmt.Sprint(status), status == http.StatusForbidden
	}}
}

func clipText(s string) string {
	return safetext.CutText(strings.Join(strings.Fields(s), " "), 120, "...")
}
