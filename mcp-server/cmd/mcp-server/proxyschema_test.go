package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// serveBesideProxies runs mcp-server for some seconds with an administrator's role, in a database that the proxies use
// too.
func serveBesideProxies(t *testing.T) error {
	t.Helper()
	store := testkit.NewPostgres(t)
	store.RunProgram([]byte("CREATE SCHEMA codeforge_proxy"), "psql", "-d", "postgres")
	sandbox, proxy := fakepeers.NewSandbox(t, 1), fakepeers.NewProxy(t, stripe)
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	args := []string{"--listen", freeAddr(t), "--sandbox", "unix:" + sandbox.Socket, "--control", proxy.Socket,
		"--skills", t.TempDir(), "--socket", filepath.Join(filepath.Dir(sandbox.Socket), "mcp.sock"), "--history", t.TempDir()}
	env := map[string]string{"DATABASE_URL": store.URL()}
	return runServer(ctx, args, func(name string) string { return env[name] }, &testkit.Buffer{})
}

// TestProxySchema: mcp-server does not start if its role could approve requests in the database.
// Promise: several-proxies
func TestProxySchema(t *testing.T) {
	if err := serveBesideProxies(t); err == nil || !strings.Contains(err.Error(), "the schema of the proxies") {
		t.Error(err)
	}
}
