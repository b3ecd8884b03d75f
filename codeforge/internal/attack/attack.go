// Package attack is the part of the attacks that a user can mount on his own running CodeForge: those that need no
// hostile server. They reach no API and hold no credential: what they ask for are names below .invalid, which nobody can
// have (RFC 2606), addresses for documentation, and the machine itself.
//
// An attack that could not be mounted counts as not held.
package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/secret"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Attack is one attempt.
type Attack struct {
	Name, Expected string
	// Code runs in the sandbox and prints lines of {held, seen}.
	Code string
	// Seconds is the run's time limit; zero means 20.
	Seconds float64
	// Judge replaces what Code printed.
	Judge func(server.Result) (seen string, held bool)
	// Do replaces Code: the attack comes from outside the sandbox.
	Do func(context.Context, Target) (seen string, held bool)
}

// Target is the CodeForge that is attacked.
type Target struct {
	Session *server.Session
	// URL is the MCP endpoint, Token opens it. Empty: none is asked for.
	URL   string
	Token secret.Value
	// Host is one of an active API, where there is one: connections to it lead to the proxy, and no request goes on.
	Host string
	// Memory is what a run may take, in bytes. Zero: unknown.
	Memory int64
	// Open says that YOLO_MODE is on: code has the network permission for every host.
	Open bool
}

// Outcome is one row of the table.
type Outcome struct {
	Name     string `json:"attack"`
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Held     bool   `json:"held"`
}

// patience is how long an attack may take.
const patience = 90 * time.Second

// Run mounts every attack in turn, and calls on with each outcome.
func Run(ctx context.Context, t Target, on func(Outcome)) {
	for _, a := range All(t) {
		if ctx.Err() != nil {
			return
		}
		seen, held := a.mount(ctx, t)
		on(Outcome{Name: a.Name, Expected: a.Expected, Seen: seen, Held: held})
	}
}

func (a Attack) mount(ctx context.Context, t Target) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if a.Do != nil {
		return a.Do(ctx, t)
	}
	seconds := a.Seconds
	if seconds == 0 {
		seconds = 20
	}
	r, err := t.Session.Execute(ctx, a.Code, nil, seconds)
	if err != nil {
		return "could not be tried: " + clip(err.Error()), false
	}
	if a.Judge != nil {
		return a.Judge(r)
	}
	return verdicts(r)
}

// unfound: the program could not start, for a module that is not there or cannot be opened.
func unfound(r server.Result) (string, bool) {
	for _, words := range []string{"Module not found", "Permission denied", "Requires read access"} {
		if r.Failed && strings.Contains(r.Output, words) {
			return strings.ToLower(words), true
		}
	}
	return "it was read", false
}

// verdicts reads what the code says of its attempts: all must have held, and there must be one.
func verdicts(r server.Result) (string, bool) {
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
			return clip(v.Seen), false
		}
		seen = append(seen, v.Seen)
	}
	if len(seen) == 0 && r.Failed && strings.Contains(r.Output, "NotCapable") {
		return "the interpreter refuses", true
	}
	if len(seen) == 0 {
		return "could not be tried: " + clip(r.Output), false
	}
	return fmt.Sprintf("%d of %d refused", len(seen), len(seen)), true
}

// endless: the run was ended by its limit.
func endless(r server.Result) (string, bool) {
	if r.Exit == nil {
		return "not ended: " + clip(r.Output), false
	}
	return "ended: " + string(r.Exit.Reason), r.Exit.Reason == runapi.Timeout
}

// short: what a flood of output comes to is bounded.
func short(r server.Result) (string, bool) {
	return fmt.Sprintf("%d bytes shown", len(r.Output)), r.Exit != nil && len(r.Output) < 8<<20
}

// post sends an initialize request to the endpoint and gives the status.
func post(ctx context.Context, t Target, token secret.Value, change func(*http.Request)) (int, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"codeforge-doctor","version":"1"}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	change(req)
	resp, err := server.Client(token).Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// refused is an attempt on the endpoint that must be answered with one of these statuses.
func refused(name, expected string, change func(*http.Request), statuses ...int) Attack {
	return Attack{Name: name, Expected: expected, Do: func(ctx context.Context, t Target) (string, bool) {
		status, err := post(ctx, t, t.Token, change)
		if err != nil {
			return "could not be tried: " + clip(err.Error()), false
		}
		for _, s := range statuses {
			if s == status {
				return fmt.Sprint(status), true
			}
		}
		return fmt.Sprint(status), false
	}}
}

func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 120 {
		return s[:120] + "..."
	}
	return s
}
