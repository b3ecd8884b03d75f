package broker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// ListStates returns the state of each server of the catalog, sorted by name.
func (b *Broker) ListStates() []mcpserver.Status {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptCatalog(cat)
	all := make([]mcpserver.Status, 0, len(b.servers))
	for _, s := range b.servers {
		all = append(all, s.currentState(time.Now()))
	}
	slices.SortFunc(all, func(x, y mcpserver.Status) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// currentState returns the server's state. The caller holds Broker.mu.
func (s *configuredServer) currentState(now time.Time) mcpserver.Status {
	out := mcpserver.Status{
		Name: s.api.Name, State: mcpserver.Stopped, Processes: len(s.instances), Problem: s.problem,
	}
	if s.recallTools(); s.known {
		n := len(s.callableTools(s.tools))
		out.Tools = &n
		out.Held = s.countHeld()
		for _, t := range s.tools {
			out.Bytes += len(t.raw)
		}
	}
	if now.Before(s.breaker.until) {
		out.State = mcpserver.Failing
	}
	for _, i := range s.instances {
		out.Calls += i.users
		if isClosed(i.ready) {
			out.State = mcpserver.Running
		} else if out.State != mcpserver.Running {
			out.State = mcpserver.Starting
		}
	}
	out.Down = out.State == mcpserver.Failing || out.State == mcpserver.Stopped && out.Problem != ""
	return out
}

// ToolList returns the known tools of a server. It does not start the server.
func (b *Broker) ToolList(name string) ([]operatorapi.Tool, error) {
	s := b.findServer(name)
	if s == nil {
		return nil, operatorapi.ErrNoServer
	}
	b.mu.Lock()
	s.recallTools()
	all := slices.Clone(s.tools)
	b.mu.Unlock()
	out := []operatorapi.Tool{}
	for _, t := range all {
		one := operatorapi.Tool{Name: t.Name, Description: t.Description, Arguments: argumentNames(t.InputSchema), May: "yes"}
		switch {
		case !s.mayCall(t):
			one.May = "no"
		case t.held != "":
			one.May = "held"
		}
		out = append(out, one)
	}
	return out, nil
}

// argumentNames returns the names of a tool's arguments, with a ? after each optional one.
func argumentNames(schema json.RawMessage) []string {
	var of struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(schema, &of) // a server may send anything
	required := map[string]bool{}
	for _, name := range of.Required {
		required[name] = true
	}
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		if !required[name] {
			name += "?"
		}
		out = append(out, name)
	}
	return out
}
