// Package alertwatch watches for events that a person may want to know, and stores them as alerts: failing APIs and MCP
// servers, tools that differ from the accepted ones, and changed skills.
package alertwatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// window is the number of latest requests that count for an API. It fails if more than half of them fail, and has
	// recovered if at most a quarter fail.
	window = 20
	// serverTime is the time between two checks of the MCP servers.
	serverTime = 5 * time.Second
	// skillTime is the time in which a skill that keeps changing is reported only once.
	skillTime = time.Hour
	// maxKnown bounds the APIs and skills that are remembered.
	maxKnown = 1000
)

// Store stores alerts and provides events.
type Store interface {
	AddAlert(a operatorapi.Alert)
	Follow(ctx context.Context, after string) ([]operatorapi.HistoryEvent, error)
}

// Watcher watches for events. Create it with New.
type Watcher struct {
	store   Store
	servers func() []mcpserver.Status
	now     func() time.Time

	apis    map[string]*latestRequests
	skills  map[string]time.Time // the last report of a change
	failing map[string]bool
	held    map[string]int
}

// New returns a watcher of a store and the states of MCP servers.
func New(store Store, servers func() []mcpserver.Status) *Watcher {
	return &Watcher{
		store: store, servers: servers, now: time.Now,
		apis: map[string]*latestRequests{}, skills: map[string]time.Time{}, failing: map[string]bool{},
		held: map[string]int{},
	}
}

// Run watches until ctx ends or the store closes.
func (w *Watcher) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan []operatorapi.HistoryEvent)
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		operatorapi.SendEvents(ctx, w.store.Follow, "", events)
	}()
	look := time.NewTicker(serverTime)
	defer look.Stop()
	for {
		select {
		case list := <-events:
			for _, e := range list {
				w.handleEvent(e)
			}
		case <-look.C:
			w.checkServers(w.servers())
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watcher) handleEvent(e operatorapi.HistoryEvent) {
	switch {
	case e.Exchange != nil:
		w.checkExchange(*e.Exchange)
	case e.Skill != nil:
		w.checkSkill(*e.Skill)
	}
}

func (w *Watcher) checkExchange(x operatorapi.Exchange) {
	// A request that the proxy did not send reveals nothing of the API. Code gives up many answers that have begun, such
	// as streams of events: they are neither failures nor successes.
	isGivenUp := x.Outcome == proxyapi.OutcomeAborted && x.Status != 0
	if len(x.APIs) == 0 || x.Outcome == proxyapi.OutcomeDenied || x.Outcome == proxyapi.OutcomePlanned || isGivenUp {
		return
	}
	name := x.APIs[0]
	l := w.apis[name]
	if l == nil {
		if len(w.apis) >= maxKnown {
			return
		}
		l = &latestRequests{}
		w.apis[name] = l
	}
	// Only the change to failing is an alert, not each further failure.
	if l.countRequest(isAPIFailure(x.Exchange)) {
		w.store.AddAlert(operatorapi.Alert{
			Kind: operatorapi.AlertAPI, Run: runOf(x.Run), API: name, Title: name + " fails",
			Text: fmt.Sprintf("%d of its last %d requests failed, the latest with %s.", l.failed, l.n, describeFailure(x)),
		})
	}
}

// runOf returns the run of an exchange, or "" for an exchange of a server or an installation.
func runOf(of string) string {
	if strings.HasPrefix(of, "r") {
		return of
	}
	return ""
}

// isAPIFailure reports whether an exchange failed by a fault of the API. An error status that the code caused does not
// count.
func isAPIFailure(x proxyapi.Exchange) bool {
	return x.Outcome != proxyapi.OutcomeServed || x.Status >= 500 ||
		x.Status == 401 || x.Status == 403 || x.Status == 429
}

func describeFailure(x operatorapi.Exchange) string {
	if x.Outcome == proxyapi.OutcomeServed {
		return fmt.Sprint("status ", x.Status)
	}
	return strings.TrimSpace("no answer " + x.Code)
}

type latestRequests struct {
	ring      [window]bool
	n, failed int
	next      int
	told      bool
}

// countRequest counts a request. It reports whether the API has started to fail.
func (l *latestRequests) countRequest(failed bool) bool {
	if l.n < window {
		l.n++
	} else if l.ring[l.next] {
		l.failed--
	}
	l.ring[l.next] = failed
	l.next = (l.next + 1) % window
	if failed {
		l.failed++
	}
	switch {
	case l.n < window:
	case l.failed > window/2 && !l.told:
		l.told = true
		return true
	// The gap between the two bounds keeps an API at the limit from being reported again and again.
	case l.failed <= window/4:
		l.told = false
	}
	return false
}

// checkSkill reports a change that was not made by hand. Skills that exist when CodeForge first lists them are not
// changes.
func (w *Watcher) checkSkill(v operatorapi.SkillVersion) {
	if v.By == operatorapi.ByHand || v.By == operatorapi.ByPerson && v.Version == 1 {
		return
	}
	if now := w.now(); now.Sub(w.skills[v.Skill]) >= skillTime {
		if len(w.skills) >= maxKnown {
			clear(w.skills)
		}
		w.skills[v.Skill] = now
		what := fmt.Sprintf("%d lines were added and %d removed", v.Added, v.Removed)
		title := "The skill " + v.Skill + " changed"
		switch {
		case v.Deleted:
			title, what = "The skill "+v.Skill+" was deleted", "Its versions stay, and each can be restored"
		case v.Version == 1:
			title = "A new skill: " + v.Skill
		}
		w.store.AddAlert(operatorapi.Alert{
			Kind: operatorapi.AlertSkill, Run: v.Run, Skill: v.Skill, Title: title,
			Text: what + ". You get this alert at most once an hour.",
		})
	}
}

// checkServers reports servers that start to fail, and servers with new held tools.
func (w *Watcher) checkServers(states []mcpserver.Status) {
	for _, s := range states {
		// A server that keeps failing is reported once.
		if fails := s.State == mcpserver.Failing; fails != w.failing[s.Name] {
			if w.failing[s.Name] = fails; fails {
				w.store.AddAlert(operatorapi.Alert{
					Kind: operatorapi.AlertServer, API: s.Name, Title: "The MCP server " + s.Name + " does not start", Text: s.Problem,
				})
			}
		}
		// Fewer held tools mean that the user has approved some.
		if s.Held > w.held[s.Name] {
			w.store.AddAlert(operatorapi.Alert{
				Kind: operatorapi.AlertServer, API: s.Name,
				Title: fmt.Sprintf("Tools of the MCP server %s are held: %d", s.Name, s.Held),
				Text: "They are new, or changed since you accepted them. See the changes, and accept them, with: " +
					"codeforge mcp approve " + s.Name,
			})
		}
		w.held[s.Name] = s.Held
	}
}
