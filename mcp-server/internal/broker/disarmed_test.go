//go:build disarm

package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDisarmed: without its defence each of these succeeds. e2e/negative runs it, under the tag disarm.
func TestDisarmed(t *testing.T) {
	accept := func(context.Context, string, userform.Question) (userform.Answer, error) {
		return userform.Answer{Action: userform.Accept}, nil
	}
	for defence, attack := range map[string]func(t *testing.T) bool{
		"question-secret": func(t *testing.T) bool {
			res := asks(t, accept).call("/a/ask", ask("x", `{"x":{"type":"string","writeOnly":true}}`, 0))
			return strings.Contains(res.text(), `"action":"accept"`)
		},
		"question-session": func(t *testing.T) bool {
			var others atomic.Int32
			w := asks(t, func(_ context.Context, run string, _ userform.Question) (userform.Answer, error) {
				if strings.HasPrefix(run, "s1-") {
					others.Add(1)
				}
				return userform.Answer{Action: userform.Accept}, nil
			})
			m := newMeeting(t)
			busy := make(chan answer, 1)
			go func() { busy <- w.send(t.Context(), "s1-r1", http.MethodPost, "/a/meet", m.call, 0) }()
			m.await(1)
			// Which of the two is asked is chance.
			testkit.WaitFor(t, func() bool {
				w.send(t.Context(), "s2-r2", http.MethodPost, "/a/ask", ask("x", "", 0), 0)
				return others.Load() > 0
			})
			m.end()
			<-busy
			return others.Load() > 0
		},
		"place-length": func(*testing.T) bool {
			schema := `{"additionalProperties":{"items":{"type":"integer"}}}`
			key, items := strings.Repeat("k", 400<<10), strings.Repeat("0,", 20_000)
			return costtest.MeasureTime(func() { findMistakes(json.RawMessage(schema), json.RawMessage(`{"`+key+`":[`+items+`0]}`)) }) > time.Second
		},
		"frame-rate": func(t *testing.T) (free bool) {
			synctest.Test(t, func(t *testing.T) {
				took, _ := readFlood(t, `{"id":7,"result":"`+strings.Repeat("x", 1<<20)+`"}`, 40)
				free = took == 0
			})
			return free
		},
		"dry-run-tools": func(t *testing.T) bool {
			_, _, text := newWorld(t, 4, hostile(t, "a", nil)).planned("s1-dry", "/a/echo", `{"text":"made"}`, proxyapi.PlanRecord, "")
			return text == "made"
		},
		"dry-run-approved": func(t *testing.T) bool {
			_, _, text := newWorld(t, 4, hostile(t, "a", nil)).planned("s1-dry", "/a/read", `{"text":"made"}`, proxyapi.PlanCheck, "")
			return text == "made"
		},
	} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", defence)
			if !attack(t) {
				t.Error("without its defence the attack was held all the same")
			}
		})
	}
}
