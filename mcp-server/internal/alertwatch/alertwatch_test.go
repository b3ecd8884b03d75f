package alertwatch

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// told is a Store that remembers titles.
type told struct {
	mu     sync.Mutex
	titles []string
	events chan []operatorapi.HistoryEvent
}

func (s *told) AddAlert(a operatorapi.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.titles = append(s.titles, a.Title)
}

func (s *told) Follow(ctx context.Context, _ string) ([]operatorapi.HistoryEvent, error) {
	select {
	case list := <-s.events:
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *told) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.titles, "; ")
	s.titles = nil
	return all
}

func exchange(api, outcome string, status int) operatorapi.HistoryEvent {
	return operatorapi.HistoryEvent{Exchange: &operatorapi.Exchange{Exchange: proxyapi.Exchange{
		Run: "r1", APIs: []string{api}, Host: api + ".test", Outcome: outcome, Status: status,
	}}}
}

// TestAPI: an API that fails more than half of 20 requests is told once, and again only after it has recovered. What the
// proxy refuses, and what code asks wrongly, is not its failure.
func TestAPI(t *testing.T) {
	s := &told{}
	w := New(s, nil)
	send := func(n int, outcome string, status int) string {
		for range n {
			w.handleEvent(exchange("a", outcome, status))
		}
		return s.take()
	}
	for i, step := range []struct {
		n       int
		outcome string
		status  int
		want    string
	}{
		{20, proxyapi.OutcomeServed, 200, ""},
		{50, proxyapi.OutcomeDenied, 403, ""},
		{50, proxyapi.OutcomePlanned, 0, ""},
		{50, proxyapi.OutcomeAborted, 200, ""},
		{50, proxyapi.OutcomeServed, 404, ""},
		{10, proxyapi.OutcomeServed, 500, ""},
		{1, proxyapi.OutcomeFailed, 0, "a fails"},
		{50, proxyapi.OutcomeServed, 401, ""},
		{50, proxyapi.OutcomeAborted, 0, ""}, // no answer has begun
		{14, proxyapi.OutcomeServed, 200, ""},
		{20, proxyapi.OutcomeFailed, 0, ""}, // it had not recovered
		{15, proxyapi.OutcomeServed, 200, ""},
		{20, proxyapi.OutcomeServed, 429, "a fails"},
	} {
		if got := send(step.n, step.outcome, step.status); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	// Answers that code gives up are no successes either: they must not outweigh failures.
	w = New(s, nil)
	for range 20 {
		w.handleEvent(exchange("a", proxyapi.OutcomeServed, 500))
		w.handleEvent(exchange("a", proxyapi.OutcomeAborted, 200))
	}
	if got := s.take(); got != "a fails" {
		t.Errorf("failures between streams: %q", got)
	}
}

// TestSkill: changes that nobody made by hand are told, once an hour for each skill.
func TestSkill(t *testing.T) {
	s := &told{}
	w := New(s, nil)
	now := time.Now()
	w.now = func() time.Time { return now }
	change := func(v operatorapi.SkillVersion) string {
		w.handleEvent(operatorapi.HistoryEvent{Skill: &v})
		return s.take()
	}
	run, shipped := operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByRun, Version: 2}, operatorapi.SkillVersion{Skill: "b", By: operatorapi.ByPerson, Version: 1}
	if got := change(shipped); got != "" {
		t.Error(got)
	}
	if got := change(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByHand, Version: 2}); got != "" {
		t.Error(got)
	}
	if got := change(run); got != "The skill a changed" {
		t.Error(got)
	}
	if got := change(run); got != "" {
		t.Error(got)
	}
	now = now.Add(skillTime)
	if got := change(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByTool, Deleted: true}); got != "The skill a was deleted" {
		t.Error(got)
	}
}

// TestServers: a server that does not start, and one whose tools are held, are told when that begins.
func TestServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &told{events: make(chan []operatorapi.HistoryEvent)}
		var state atomic.Value
		state.Store(mcpserver.Status{Name: "a", State: mcpserver.Running})
		w := New(s, func() []mcpserver.Status { return []mcpserver.Status{state.Load().(mcpserver.Status)} })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		for i, step := range []struct {
			state mcpserver.ServerState
			held  int
			want  string
		}{
			{mcpserver.Running, 0, ""}, {mcpserver.Failing, 0, "The MCP server a does not start"}, {mcpserver.Failing, 0, ""},
			{mcpserver.Running, 2, "Tools of the MCP server a are held: 2"}, {mcpserver.Running, 2, ""}, {mcpserver.Running, 0, ""},
			{mcpserver.Failing, 0, "The MCP server a does not start"},
		} {
			state.Store(mcpserver.Status{Name: "a", State: step.state, Held: step.held})
			time.Sleep(serverTime)
			synctest.Wait()
			if got := s.take(); got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		s.events <- []operatorapi.HistoryEvent{{Skill: &operatorapi.SkillVersion{Skill: "x", By: operatorapi.ByRun, Version: 1}}}
		synctest.Wait()
		if got := s.take(); got != "A new skill: x" {
			t.Error(got)
		}
		cancel()
		<-done
	})
}
