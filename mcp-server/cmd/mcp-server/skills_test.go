package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// replica starts an mcp-server whose state is in Postgres, and whose sandbox has the files that a run brings and no
// others.
func replica(t *testing.T, p *testkit.Postgres, more map[string]string) *program {
	t.Helper()
	env := map[string]string{"DATABASE_URL": p.URL()}
	maps.Copy(env, more)
	secret, server := p.Password, start(t, 2, env, "--history", t.TempDir(), "--tenants", t.TempDir())
	server.sandbox.SetScript(func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		if text, _ := json.Marshal(r); strings.Contains(string(text), secret) || !r.Private {
			t.Errorf("a run got %s", text)
		}
		dir, err := os.MkdirTemp("", "skills")
		if err != nil {
			t.Error(err)
		}
		defer os.RemoveAll(dir)
		for name, source := range r.Skills {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
				t.Error(err)
			}
		}
		return newDenoScript(t, server.sandbox, dir)(ctx, r, emit)
	})
	return server
}

func save(t *testing.T, s *mcp.ClientSession, name, old, source string) string {
	t.Helper()
	if old != "" {
		old += "\n"
	}
	patch := "<<<<<<< SEARCH\n" + old + "=======\n" + source + "\n>>>>>>> REPLACE"
	_, got := call(t, s, "update_skill", map[string]any{"name": name, "patch": patch})
	return strings.Join(got, "\n")
}

// uses is what code says that imports a value from a skill.
func uses(t *testing.T, s *mcp.ClientSession, name string) string {
	t.Helper()
	_, got := call(t, s, "execute_code", map[string]any{"code": fmt.Sprintf("import { value } from '/skills/%s.ts'; console.log(value)", name)})
	return got[0]
}

const first, second = "/** @description A value */", "export const value = 'of the first';"

// TestSkillsStore: what a model saves through one mcp-server is listed, read and imported by code through another one,
// and while Postgres is away all goes on but saving.
// Promise: shared-skills
func TestSkillsStore(t *testing.T) {
	store := testkit.NewPostgres(t)
	one, two := replica(t, store, nil), replica(t, store, nil)
	a, b := one.connect(t, nil), two.connect(t, nil)
	if got := save(t, a, "shared", "", first+"\n"+second); !strings.HasPrefix(got, "Skill shared was updated") || strings.Contains(got, "does not load") {
		t.Error(got)
	}
	if got := uses(t, a, "shared"); got != "of the first\n" {
		t.Errorf("its own: %q", got)
	}
	listed := func(s *mcp.ClientSession, what string) bool {
		_, got := call(t, s, "get_instructions", nil)
		return strings.Contains(strings.Join(got, "\n"), what)
	}
	began := time.Now()
	testkit.WaitFor(t, func() bool { return listed(b, "- shared: A value") })
	t.Logf("listed by the other one after %s", time.Since(began).Round(100*time.Millisecond))
	if got := uses(t, b, "shared"); got != "of the first\n" {
		t.Errorf("the other's: %q", got)
	}
	res, err := b.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://shared"})
	if err != nil || !strings.Contains(res.Contents[0].Text, "of the first") {
		t.Errorf("%v %+v", err, res)
	}
	if got := save(t, b, "shared", second, "export const value = 'of the second';"); !strings.Contains(got, "was updated") {
		t.Error(got)
	}
	if got := save(t, a, "shared", second, "export const value = 'of the loser';"); !strings.Contains(got, "was changed concurrently") && !strings.Contains(got, "the SEARCH text does not occur") {
		t.Error(got)
	}
	if got := uses(t, a, "shared"); got != "of the second\n" {
		t.Errorf("after the conflict: %q", got)
	}

	store.Stop()
	testkit.WaitFor(t, func() bool {
		return listed(a, "This list may be out of date: the skills' database has not been read since")
	})
	if got := uses(t, a, "shared"); got != "of the second\n" {
		t.Errorf("without Postgres: %q", got)
	}
	if got := save(t, a, "other", "", first); !strings.Contains(got, "The store of skills did not confirm the change of other") {
		t.Error(got)
	}
	store.Start()
	testkit.WaitFor(t, func() bool { return !listed(a, "out of date") })
	if got := save(t, a, "other", "", first); !strings.Contains(got, "was updated") {
		t.Error(got)
	}
	_, got := call(t, b, "delete_skill", map[string]any{"name": "shared"})
	if !strings.Contains(got[0], "was deleted") {
		t.Error(got)
	}
	testkit.WaitFor(t, func() bool { return !listed(a, "- shared") })
	for _, p := range []*program{one, two} {
		if strings.Contains(p.log.String(), store.Password) {
			t.Error("the password is in the log")
		}
	}
}

// TestSkillsStoreOfTenants: a tenant has the same skills of its own wherever it connects, and others have not.
// Promise: shared-skills
func TestSkillsStoreOfTenants(t *testing.T) {
	store := testkit.NewPostgres(t)
	file := filepath.Join(t.TempDir(), "tenants.json")
	tenant := func(name string) string {
		return fmt.Sprintf(`%q: {"tokens": ["sha256:%x"], "apis": ["stripe"], "skills": ["page-through"]}`, name, sha256.Sum256([]byte("token-of-tenant-"+name)))
	}
	testkit.Must(t, os.WriteFile(file, []byte(`{"tenants": {`+tenant("ann")+","+tenant("bob")+"}}"), 0o600))
	env := map[string]string{"MCP_AUTH_TOKEN": "token-of-the-operator", "MCP_TOKENS_FILE": file}
	one, two := replica(t, store, env), replica(t, store, env)
	as := func(p *program, name string) *mcp.ClientSession {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: &http.Client{Transport: bearer("token-of-tenant-" + name)}}, nil)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	if got := save(t, as(one, "ann"), "mine", "", first+"\n"+second); !strings.Contains(got, "was updated") {
		t.Fatal(got)
	}
	there := as(two, "ann")
	testkit.WaitFor(t, func() bool { // until it has read the store; each use would start Deno
		_, got := call(t, there, "get_instructions", nil)
		return strings.Contains(strings.Join(got, "\n"), "- mine")
	})
	if got := uses(t, there, "mine"); got != "of the first\n" {
		t.Errorf("at the other replica: %q", got)
	}
	if got := uses(t, as(two, "bob"), "mine"); strings.Contains(got, "of the first") {
		t.Error("another tenant can import it")
	}
	_, got := call(t, as(two, "bob"), "get_instructions", nil)
	if text := strings.Join(got, "\n"); strings.Contains(text, "- mine") || !strings.Contains(text, "- page-through") {
		t.Error(text)
	}
	// While Postgres does not answer, only the tenant that connects for the first time waits.
	ann, opened, locked := as(one, "ann"), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(locked)
		store.Query("LOCK TABLE document; SELECT pg_sleep(3)") // in one transaction
	}()
	defer func() { <-locked }()
	testkit.WaitFor(t, func() bool {
		return store.Query("SELECT count(*) FROM pg_locks WHERE relation = 'document'::regclass AND mode = 'AccessExclusiveLock' AND granted") == "1"
	})
	go func() {
		defer close(opened)
		as(one, "bob")
	}()
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := ann.ListTools(ctx, nil); err != nil {
			t.Errorf("another tenant waits: %v", err)
		}
		cancel()
		time.Sleep(100 * time.Millisecond)
	}
	select {
	case <-opened:
		t.Error("the new tenant did not wait for the database")
	case <-time.After(10 * time.Millisecond):
		<-opened
	}
}

// TestDatabaseRefused: a Postgres that refuses the user keeps the program from starting, and one that is away does not.
// The message has no part of the URL.
func TestDatabaseRefused(t *testing.T) {
	store := testkit.NewPostgres(t)
	env := map[string]string{"DATABASE_URL": strings.Replace(store.URL(), store.Password, "another-password", 1)}
	args := []string{"--listen", "127.0.0.1:0", "--sandbox", "unix:/nowhere/s", "--control", "/nowhere/c", "--skills", t.TempDir(), "--history", t.TempDir()}
	var log testkit.Buffer
	err := runServer(t.Context(), args, func(k string) string { return env[k] }, &log)
	if err == nil || !strings.Contains(err.Error(), "DATABASE_URL: the database refuses the user, the password or") ||
		strings.Contains(err.Error(), "another-password") || strings.Contains(err.Error(), store.Address) {
		t.Error(err)
	}
	store.Stop()
	p := replica(t, store, nil)
	if got := save(t, p.connect(t, nil), "other", "", first); !strings.Contains(got, "database does not answer") {
		t.Error(got)
	}
	if strings.Contains(p.log.String(), store.Password) || strings.Contains(p.log.String(), store.Address) {
		t.Error("the log has a part of the URL")
	}
}
