package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// TestForeignDotenv: a .env that came with somebody's folder does not choose where the token and code are sent. Only
// the environment and the command line name another server than this machine's.
// Promise: foreign-folders
func TestForeignDotenv(t *testing.T) {
	config := func(dotenv string, environ ...string) (chosen, fallback string, err error) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(dotenv+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		e := &Env{home: dir, Environ: append(environ, "MCP_AUTH_TOKEN=s3cret-token-0123456789")}
		c, err := targetFlags(pflag.NewFlagSet("x", pflag.ContinueOnError)).newConfig(e)
		return c.URL, c.Fallback, err
	}
	for _, dotenv := range []string{
		"CODEFORGE_URL=http://evil.example/mcp", "CODEFORGE_URL=docker://evil", "MCP_PORT=1@evil.example",
		"MCP_PORT=1@evil.example:80", "MCP_PORT=8080/../..@evil.example", "MCP_PORT=", "MCP_PORT=0", "MCP_PORT=65536", "MCP_PORT=+80",
	} {
		chosen, fallback, err := config(dotenv)
		u, parsed := url.Parse(fallback)
		if err == nil && (chosen != "" || parsed != nil || u.Hostname() != "127.0.0.1" || u.User != nil || fallback != "http://127.0.0.1:8080/mcp") {
			t.Errorf("%s: %q, else %q", dotenv, chosen, fallback)
		}
	}
	if chosen, fallback, err := config("MCP_PORT=4711", "CODEFORGE_URL=http://own.example/mcp"); err != nil || chosen != "http://own.example/mcp" || fallback != "http://127.0.0.1:4711/mcp" {
		t.Errorf("%q, else %q, %v", chosen, fallback, err)
	}
}
