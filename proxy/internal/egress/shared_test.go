package egress_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	env "github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// sharedAPI has a limit for writes, and asks a person on one path.
const sharedAPI = `, "limits": {"writes": "40/h"}, "rules": [{"path": "/ask", "then": "approve"}, {"then": "allow"}]`

func openShared(t *testing.T, p *testkit.Postgres) *database.DB {
	t.Helper()
	db, err := shareddb.OpenDatabase(t.Context(), env.Settings{ProxyDatabase: secret.New(p.URL())})
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestTwoProxies: two whole proxies with real upstreams. A limit holds across both under load. An approval at one frees
// the request at the other. Without the database, requests that need a limit or an approval are refused, and others
// leave; afterwards all works again.
// Promise: several-proxies
func TestTwoProxies(t *testing.T) {
	p := testkit.NewPostgres(t)
	check(t, shareddb.MigrateTables(t.Context(), func(name string) string {
		return map[string]string{"PROXY_DATABASE_URL": p.URL()}[name]
	}))
	var rigs [2]*rig
	var ups [2]seen
	for i := range rigs {
		rigs[i] = newRig(t, setup{apis: map[string]string{"demo": demoAPI(sharedAPI)}, database: openShared(t, p)})
		rigs[i].upstreams.https(ups[i].echo())
		rigs[i].begin()
	}
	ask := func(i int, method, path string) (status int, text string) {
		status, _, text = rigs[i].ask(method, path, "{}")
		return status, text
	}

	done := make(chan int, 1)
	go func() { status, _ := ask(0, http.MethodPost, "/ask"); done <- status }()
	list := func() []approvalapi.HeldRequest {
		list, _ := rigs[1].approvals.ListHeldOfAll(t.Context())
		return list
	}
	testkit.WaitFor(t, func() bool { return len(list()) == 1 })
	if text := p.Query(`SELECT request FROM codeforge_proxy.held`); strings.Contains(text, secretValue) || !strings.Contains(text, tokenName) {
		t.Errorf("the database has %s", text)
	}
	_, err := rigs[1].approvals.DecideHeld(list()[0].ID, approvalapi.Answer{Approve: true}, true)
	check(t, err)
	if status := <-done; status != 200 || ups[0].count() != 1 || ups[0].last(t).Header.Get("Authorization") != "Bearer "+secretValue {
		t.Errorf("approved at the other proxy: %d", status)
	}

	var passed, refused atomic.Int64
	var load sync.WaitGroup
	for i := range 2 {
		for range 4 {
			load.Go(func() {
				for range 25 {
					switch status, text := ask(i, http.MethodPost, "/refunds"); {
					case status == 200:
						passed.Add(1)
					case strings.Contains(text, "limit_reached"):
						refused.Add(1)
					default:
						t.Errorf("%d %s", status, text)
					}
				}
			})
		}
	}
	load.Wait()
	if passed.Load() != 39 || refused.Load() != 161 || ups[0].count()+ups[1].count() != 40 || ups[1].count() == 0 {
		t.Errorf("%d of 200 passed a limit of which 39 were left; the proxies sent %d and %d", passed.Load(), ups[0].count(), ups[1].count())
	}
	p.Query(`DELETE FROM codeforge_proxy.limit_use`)

	for _, c := range []struct{ leave, comeBack func() }{
		{func() { p.SendSignal(syscall.SIGSTOP) }, func() { p.SendSignal(syscall.SIGCONT) }}, {p.Stop, p.Start},
	} {
		c.leave()
		before := ups[0].count()
		for _, path := range []string{"/refunds", "/ask"} {
			began := time.Now()
			if status, text := ask(0, http.MethodPost, path); status != 503 || !strings.Contains(text, "state_unavailable") || time.Since(began) > 8*time.Second {
				t.Errorf("without the database, %s: %d %s after %s", path, status, text, time.Since(began))
			}
		}
		if status, text := ask(0, http.MethodGet, "/refunds"); status != 200 || ups[0].count() != before+1 {
			t.Errorf("a request that needs neither: %d %s", status, text)
		}
		c.comeBack()
		testkit.WaitFor(t, func() bool { status, _ := ask(0, http.MethodPost, "/refunds"); return status == 200 })
	}
}
