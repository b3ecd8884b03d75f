//go:build disarm

package egress_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDisarmed: without its defence each of these attacks succeeds. e2e/negative runs it, under the tag disarm: a
// process in a slot for MCP servers cannot be had there.
func TestDisarmed(t *testing.T) {
	for defence, attack := range map[string]func(t *testing.T, r *rig, calls, upstreams *seen) bool{
		"server-in-run": func(t *testing.T, r *rig, calls, _ *seen) bool {
			defer r.begin("my-files")()
			_ = body(t, post(t, r.client(true), "https://"+callHost+"/notes/read", "{}"))
			return calls.count() == 1
		},
		"server-calls": func(t *testing.T, r *rig, calls, _ *seen) bool {
			defer r.beginServer(proxyapi.Registration{APIs: []string{"notes"}})()
			_ = body(t, post(t, r.clientIn(serverSlot, true), "https://"+callHost+"/notes/read", "{}"))
			return calls.count() == 1
		},
		"server-hosts": func(t *testing.T, r *rig, _, _ *seen) bool {
			defer r.beginServer(proxyapi.Registration{APIs: []string{"notes"}})()
			_ = body(t, post(t, r.clientIn(serverSlot, true), "https://elsewhere.test/", "data"))
			_, resolved := r.upstreams.asked.Load("elsewhere.test")
			return resolved
		},
		"server-host": func(t *testing.T, r *rig, _, upstreams *seen) bool {
			defer r.begin("remote")()
			_ = body(t, post(t, r.client(true), "https://remote.demo.test/mcp", "{}"))
			return upstreams.count() == 1
		},
		"install-credential": func(t *testing.T, r *rig, _, upstreams *seen) bool {
			defer r.beginServer(proxyapi.Registration{Install: true})()
			req, err := http.NewRequest(http.MethodGet, "https://registry.demo.test/name", nil)
			check(t, err)
			req.Header.Set("Authorization", "Bearer REGISTRY_AUTH_TOKEN")
			resp, err := r.clientIn(serverSlot, true).Do(req)
			check(t, err)
			_ = body(t, resp)
			return upstreams.last(t).Header.Get("Authorization") == "Bearer "+secretValue+"REGISTRY_AUTH_TOKEN"
		},
		"idempotency": func(t *testing.T, r *rig, _, _ *seen) bool {
			defer r.begin("keyed")()
			var keys []string
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				keys = append(keys, req.Header.Get("Idempotency-Key"))
				w.WriteHeader(http.StatusGatewayTimeout)
			}))
			for range 2 {
				_ = body(t, post(t, r.client(true), "https://keyed.demo.test/pay", "{}"))
			}
			return len(keys) == 2 && keys[0] != keys[1]
		},
		"message-framing": func(t *testing.T, r *rig, _, _ *seen) bool {
			defer r.begin("keyed")()
			return strings.Contains(splitKey(t, r, "keyed.demo.test"), secretValue)
		},
		"signature": func(t *testing.T, r *rig, _, _ *seen) bool {
			defer r.begin("signing")()
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.Header.Get("X-Hex")) }))
			req, err := http.NewRequest(http.MethodGet, "https://sign.demo.test/", nil)
			check(t, err)
			req.Header.Set("X-Hex", "SIGN_HEX")
			resp, err := r.client(true).Do(req)
			check(t, err)
			return len(body(t, resp)) > 64
		},
		"rule-path": func(t *testing.T, r *rig, _, upstreams *seen) bool {
			defer r.begin("ruled")()
			in, _ := r.raw("ruled.demo.test", "GET //admin/x HTTP/1.1\r\nHost: ruled.demo.test\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			check(t, err)
			_ = body(t, resp)
			return upstreams.count() == 1
		},
		"etag": func(t *testing.T, r *rig, _, _ *seen) bool {
			defer r.begin("keyed")()
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"1"`) }))
			req, err := http.NewRequest(http.MethodHead, "https://keyed.demo.test/", nil)
			check(t, err)
			req.Header.Set("Authorization", "Bearer KEYED_AUTH_TOKEN")
			resp, err := r.client(true).Do(req)
			check(t, err)
			_ = body(t, resp)
			return resp.Header.Get("Etag") != ""
		},
	} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", defence)
			apis := mcpServers()
			apis["private"] = serverAPI("registry.demo.test", "REGISTRY_AUTH_TOKEN", "")
			apis["remote"] = `{"description": "d", "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
				"mcp": {"url": "https://remote.demo.test/mcp"}}`
			apis["keyed"] = strings.ReplaceAll(strings.ReplaceAll(demoAPI(`, "idempotency": "Idempotency-Key"`), demoHost, "keyed.demo.test"),
				tokenName, "KEYED_AUTH_TOKEN")
			apis["ruled"] = strings.NewReplacer(demoHost, "ruled.demo.test", tokenName, "RULED_AUTH_TOKEN").Replace(
				demoAPI(`, "rules": [{"path": "/admin/**", "then": "refuse"}, {"path": "/**", "then": "allow"}]`))
			apis["signing"] = strings.ReplaceAll(signingAPI, demoHost, "sign.demo.test")
			r := newRig(t, setup{apis: apis, yolo: true, registry: "registry.demo.test"})
			var calls, upstreams seen
			r.connectBroker(func(_ http.ResponseWriter, req *http.Request) { calls.note(req) })
			r.upstreams.https(upstreams.echo())
			if !attack(t, r, &calls, &upstreams) {
				t.Error("the attack is stopped by something else")
			}
		})
	}
	// An approval of a request of the run r1, and then a request that is not only r1's.
	for defence, calls := range map[string][]string{"call-run": {"2 r2", "3 r1"}, "call-tenant": {"2 r3"}} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", defence)
			r := newRig(t, setup{apis: asking(holdAll)})
			r.upstreams.https(new(seen).echo())
			defer r.beginNotes("")()
			for id, of := range []string{"r1 ", "r2 ", "r3 mallory"} {
				run, tenant, _ := strings.Cut(of, " ")
				defer r.beginNamed(run, tenant, slot.ID(id))()
			}
			r.setCalls(1, "1 r1")
			if defence == "call-tenant" {
				r.setCalls(2, calls...)
			}
			done := r.sendNotes("/a")
			r.decide(r.await(1), true, approvalapi.ScopeRule)
			<-done
			r.setCalls(3, calls...)
			if got := <-r.sendNotes("/a"); got != "200" {
				t.Errorf("the attack is stopped by something else: %s", got)
			}
		})
	}
	t.Run("tenant-hosts", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "tenant-hosts")
		r := newRig(t, setup{apis: sharing()})
		defer r.beginNotes("alice")()
		if got := body(t, post(t, r.clientIn(serverSlot, true), "https://notes.demo.test/", "{}")); !strings.Contains(got, "API strict") {
			t.Errorf("the attack is stopped by something else: %s", got)
		}
	})
	t.Run("call-end", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "call-end")
		r := newRig(t, setup{apis: asking(holdAll)})
		r.upstreams.https(new(seen).echo())
		defer r.beginNotes("")()
		end := r.beginNamed("r1", "", 0)
		r.setCalls(1, "1 r1")
		done := r.sendNotes("/a")
		h := r.await(1)
		end()
		r.decide(h, true, "")
		if got := <-done; got != "200" {
			t.Errorf("the attack is stopped by something else: %s", got)
		}
	})
	t.Run("memory-budget", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "memory-budget")
		r := newRig(t, setup{apis: map[string]string{"table": tableAPI}})
		defer r.begin()()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hoard(ctx, r)
		testkit.WaitFor(t, func() bool { return r.memory.UsedBytes() > budgetSize/4+16<<20 })
	})
	t.Run("shared-state", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "shared-state")
		// No database listens at this port.
		db, err := database.OpenPostgres(secret.New("postgres://proxy:x@127.0.0.1:1/x?sslmode=disable"), "codeforge_proxy", time.Second)
		check(t, err)
		defer db.Close()
		r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(sharedAPI)}, database: db})
		var up seen
		r.upstreams.https(up.echo())
		defer r.begin()()
		for _, path := range []string{"/refunds", "/ask"} {
			_ = body(t, post(t, r.client(true), "https://"+demoHost+path, "{}"))
		}
		if up.count() != 2 {
			t.Errorf("the attack is stopped by something else: %d requests left", up.count())
		}
	})
	t.Run("single-sending", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "single-sending")
		if n := countSendings(t, "/ask"); n != 2 {
			t.Errorf("the attack is stopped by something else: the server got %d requests", n)
		}
	})
	t.Run("ledger-required", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "ledger-required")
		r := newRig(t, setup{sending: func(ledger.Sending) error { return errors.New("no space left") }})
		var up seen
		r.upstreams.https(up.echo())
		defer r.begin()()
		_ = body(t, post(t, r.client(true), "https://"+demoHost+"/refunds", "{}"))
		if up.count() != 1 {
			t.Error("the attack is stopped by something else")
		}
	})
}
