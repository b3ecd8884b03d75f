package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestAddAWS: a document of AWS gets a credential that signs. On a terminal, the user supplies the region, and the two parts
// of the access key.
func TestAddAWS(t *testing.T) {
	dir := t.TempDir()
	document := filepath.Join(dir, "openapi.json")
	testkit.Must(t, os.WriteFile(document, []byte(`{"openapi": "3.0.0", "info": {"title": "MemoryDB"},
		"servers": [{"url": "https://memory-db.{region}.amazonaws.com", "variables": {"region": {"default": "us-east-1"}}}],
		"components": {"securitySchemes": {"hmac": {"type": "apiKey", "in": "header", "name": "Authorization", "x-amazon-apigateway-authtype": "awsSigv4"}}},
		"security": [{"hmac": []}], "paths": {"/": {"post": {"operationId": "CreateCluster"}}}}`), 0o600))
	terminalEnd, program := testkit.OpenTerminal(t)
	defer func() { _, _ = terminalEnd.Close(), program.Close() }()
	log, err := os.Create(filepath.Join(dir, "log"))
	testkit.Must(t, err)
	defer log.Close()
	e := &Env{Stdin: program, Stdout: terminal.NewStream(log), Stderr: terminal.NewStream(log), Environ: []string{"CODEFORGE_HOME=" + dir}}
	testkit.Must(t, e.setHome())
	o := apiOptions{
		vars: map[string]string{}, apis: filepath.Join(dir, "apis"), openapi: document,
		target: targetFlags(pflag.NewFlagSet("", pflag.ContinueOnError)),
	}
	*o.target.state = filepath.Join(dir, "none")
	const id, key = "AKIAQ3EGWBT5V7XNYZLM", "q7Zr0mKc4VtYb9LxWn2PdHs6GfJu8EaRk3TiBo5C"
	_, err = io.WriteString(terminalEnd, "\neu-central-1\n"+id+"\n"+key+"\n")
	testkit.Must(t, err)
	testkit.Must(t, o.addAPI(t.Context(), e, "memory"))
	cat, problems := catalog.Load(o.apis, catalog.Options{})
	if len(problems) > 0 || len(cat.APIs()) != 1 || len(cat.APIs()[0].Credentials) != 1 {
		t.Fatalf("%v, %+v", problems, cat.APIs())
	}
	c := cat.APIs()[0].Credentials[0]
	aws, ok := c.Mint.(*catalog.AWS)
	if !ok || c.Name != "MEMORY_AWS_KEY" || aws.Region != "eu-central-1" || aws.AccessKeyID != id || aws.SecretAccessKey.Reveal() != key {
		t.Errorf("%s, %+v", c.Name, aws)
	}
	if shown, err := os.ReadFile(log.Name()); err != nil || strings.Contains(string(shown), key) {
		t.Errorf("%v, %s", err, shown)
	}
}
