package doctor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
)

// The test binary is also the inner process of embedded.ProbeKernel.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == embedded.ProbeCommand {
		if err := embedded.RunProbe(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func ca(t *testing.T, from, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCheckCA(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	year := 365 * 24 * time.Hour
	for name, row := range map[string]struct {
		text []byte
		want Status
		says string
	}{
		"fine":          {ca(t, now.Add(-time.Hour), now.Add(year)), OK, "2027-11-20"},
		"ends soon":     {ca(t, now.Add(-year), now.Add(24*time.Hour)), Warn, "expires on 2026-11-21"},
		"ended":         {ca(t, now.Add(-year), now.Add(-time.Hour)), Fail, "expired"},
		"not yet valid": {ca(t, now.Add(time.Hour), now.Add(year)), Fail, "valid only from"},
		"no PEM":        {[]byte("hello"), Fail, "is not PEM"},
		"broken":        {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), Fail, "cannot be parsed"},
	} {
		f := checkCA(row.text, now)
		if f.Status != row.want || !strings.Contains(f.Text, row.says) {
			t.Errorf("%s: %+v, want %s saying %q", name, f, row.want, row.says)
		}
		if f.Status != OK && f.Fix == "" {
			t.Errorf("%s: the finding suggests no fix", name)
		}
	}
}

func TestClock(t *testing.T) {
	for _, row := range []struct {
		off  []time.Duration
		want Status
	}{
		{nil, Skip},
		{[]time.Duration{time.Second}, OK},
		{[]time.Duration{-time.Hour, time.Second, 2 * time.Second}, OK}, // one host is wrong
		{[]time.Duration{-time.Hour, -time.Hour, time.Second}, Fail},
		{[]time.Duration{3 * time.Minute}, Fail},
	} {
		if f := checkClock(row.off); f.Status != row.want {
			t.Errorf("clock(%v) = %+v, want %s", row.off, f, row.want)
		}
	}
}

func TestCheckModes(t *testing.T) {
	for _, row := range []struct {
		name string
		all  []Finding
		want int
	}{
		{"both", []Finding{newOK("Deno", ""), newOK("Docker", "")}, 0},
		{"embedded", []Finding{newOK("Deno", ""), newSkip("Docker", "")}, 0},
		{"another Deno", []Finding{{Check: "Deno", Status: Warn, minor: true}, newSkip("Docker", "")}, 0},
		{"Docker", []Finding{newWarning("namespaces", "", ""), newOK("Docker", "")}, 0},
		{"no interpreter starts", []Finding{newOK("namespaces", ""), newFailure("interpreter", "", ""), newSkip("Docker", "")}, 1},
		{"no interpreter starts, but Docker", []Finding{newOK("namespaces", ""), newFailure("interpreter", "", ""), newOK("Docker", "")}, 0},
		{"neither", []Finding{newWarning("namespaces", "", ""), newSkip("Docker", "")}, 1},
		{"a Mac without Docker", []Finding{newSkip("kernel", ""), newSkip("Docker", "")}, 1},
	} {
		if got := checkModes(row.all); len(got) != row.want {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// TestFiles: secret files that other users can read are reported.
func TestFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	state, err := statedir.CreateDir(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	dotenv := filepath.Join(dir, ".env")
	c := Config{State: state, Dotenv: dotenv}
	check := func() string {
		var b bytes.Buffer
		for _, f := range checkFiles(t.Context(), c) {
			b.WriteString(string(f.Status) + " " + f.Text + "\n")
			if strings.Contains(f.Text, "s3cret-token") {
				t.Errorf("the token is shown: %+v", f)
			}
		}
		return b.String()
	}
	write(dotenv, "MCP_PORT=1\n", 0o644)
	if got := check(); strings.Contains(got, "warning") || strings.Contains(got, "failed") {
		t.Errorf("nothing is wrong, got\n%s", got)
	}
	write(dotenv, "PROXY_DATABASE_URL=postgres://u:s3cret-token@db.test/x\n", 0o644)
	if got := check(); !strings.Contains(got, "warning "+dotenv+" holds PROXY_DATABASE_URL") {
		t.Errorf("the password of a database is readable, got\n%s", got)
	}
	write(dotenv, "MCP_AUTH_TOKEN=s3cret-token\n", 0o644)
	write(state.Join("ca-private", "ca.key"), "key", 0o644)
	if err := os.Chmod(state.Path(), 0o755); err != nil {
		t.Fatal(err)
	}
	got := check()
	for _, want := range []string{"warning " + dotenv + " holds MCP_AUTH_TOKEN", "failed other users can access", "failed other users can read the key"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
}

// TestExamine: every check runs, in the same order, even when nothing is installed.
func TestExamine(t *testing.T) {
	state, err := statedir.FindDir(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	var checks []string
	RunChecks(context.Background(), Config{State: state, Dotenv: "nowhere", Offline: true, Environ: os.Environ()}, func(f Finding) {
		checks = append(checks, f.Check)
	})
	if checks[0] != "codeforge" || checks[len(checks)-1] != "hosts" {
		t.Errorf("checks %q", checks)
	}
}
