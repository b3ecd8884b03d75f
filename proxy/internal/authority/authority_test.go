package authority

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func open2(t *testing.T, private, public string, now func() time.Time) *Authority {
	t.Helper()
	a, err := New(Config{Private: private, Public: public, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func host(t *testing.T, s string) catalog.Host {
	t.Helper()
	h, err := catalog.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFirstStart(t *testing.T) {
	private, public := filepath.Join(t.TempDir(), "private"), filepath.Join(t.TempDir(), "public")
	a := open2(t, private, public, nil)
	info, err := os.Stat(filepath.Join(private, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(filepath.Join(public, PublicFile))
	if err != nil || !strings.HasPrefix(string(text), "-----BEGIN CERTIFICATE") || strings.Contains(string(text), "PRIVATE") {
		t.Errorf("the public certificate: %q, %v", text, err)
	}
	if entries, _ := os.ReadDir(public); len(entries) != 1 {
		t.Errorf("the public directory has %v", entries)
	}
	if b := open2(t, private, public, nil); !b.Certificate().Equal(a.Certificate()) {
		t.Error("a second start made another authority")
	}
	// A lost published copy is restored.
	if err := os.Remove(filepath.Join(public, PublicFile)); err != nil {
		t.Fatal(err)
	}
	open2(t, private, public, nil)
	if _, err := os.Stat(filepath.Join(public, PublicFile)); err != nil {
		t.Error(err)
	}
}

func TestBadDirectory(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"readable key":     func(d string) error { return os.Chmod(filepath.Join(d, keyFile), 0o644) },
		"key is garbage":   func(d string) error { return os.WriteFile(filepath.Join(d, keyFile), []byte("x"), 0o600) },
		"no certificate":   func(d string) error { return os.WriteFile(filepath.Join(d, certFile), nil, 0o600) },
		"another's key":    func(d string) error { return swapKey(d) },
		"directory a file": func(d string) error { return errors.Join(os.RemoveAll(d), os.WriteFile(d, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			private, public := filepath.Join(t.TempDir(), "p"), t.TempDir()
			open2(t, private, public, nil)
			if err := spoil(private); err != nil {
				t.Fatal(err)
			}
			if _, err := New(Config{Private: private, Public: public}); err == nil {
				t.Error("it opened")
			}
		})
	}
}

// TestCreateKeepsPair: a renewal that cannot write its key leaves no certificate without one, which no start could use.
func TestCreateKeepsPair(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, keyFile, "in the way"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, certFile), []byte("old"), 0o600))
	if _, _, err := createAuthority(dir, time.Now()); err == nil {
		t.Error("it replaced a directory")
	}
	if text, err := os.ReadFile(filepath.Join(dir, certFile)); string(text) != "old" {
		t.Errorf("the certificate is %q, %v", text, err)
	}
}

// swapKey replaces the directory's key by that of another authority.
func swapKey(dir string) error {
	other, err := os.MkdirTemp("", "other")
	if err != nil {
		return err
	}
	defer os.RemoveAll(other)
	if _, err := New(Config{Private: other, Public: other}); err != nil {
		return err
	}
	return os.Rename(filepath.Join(other, keyFile), filepath.Join(dir, keyFile))
}

func TestLeaf(t *testing.T) {
	a := open2(t, t.TempDir(), t.TempDir(), nil)
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate())
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".test"
	for _, name := range []string{"api.demo.test", long, "xn--bcher-kva.test"} {
		c, err := a.GetLeaf(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: "other.test", Roots: pool}); err == nil {
			t.Errorf("%s passes for another host", name)
		}
		if _, ok := c.PrivateKey.(*ecdsa.PrivateKey); !ok {
			t.Errorf("the key is a %T", c.PrivateKey)
		}
		if c.Leaf.NotAfter.After(a.Certificate().NotAfter) || c.Leaf.IsCA {
			t.Errorf("%s: until %s, CA %t", name, c.Leaf.NotAfter, c.Leaf.IsCA)
		}
	}
}

// TestSingleFlight: many handshakes for a new host mint one leaf.
func TestSingleFlight(t *testing.T) {
	a := open2(t, t.TempDir(), t.TempDir(), nil)
	var mu sync.Mutex
	serials := map[string]bool{}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			c, err := a.GetCertificate(&tls.ClientHelloInfo{ServerName: "Api.Demo.test"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			serials[c.Leaf.SerialNumber.String()] = true
		})
	}
	wg.Wait()
	if len(serials) != 1 {
		t.Errorf("%d leaves were minted", len(serials))
	}
}

func TestCacheIsBounded(t *testing.T) {
	a := open2(t, t.TempDir(), t.TempDir(), nil)
	first, err := a.GetLeaf(host(t, "h0.test"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= maxLeaves; i++ {
		if _, err := a.GetLeaf(host(t, fmt.Sprintf("h%d.test", i))); err != nil {
			t.Fatal(err)
		}
		if n := len(a.leaves); n > maxLeaves {
			t.Fatalf("the cache holds %d leaves", n)
		}
	}
	again, err := a.GetLeaf(host(t, "h0.test"))
	if err != nil || again == first {
		t.Errorf("the first leaf is still there, %v", err)
	}
}

// TestRenewal: the leaves and the authority are renewed before they expire.
func TestRenewal(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	private, public := t.TempDir(), t.TempDir()
	a := open2(t, private, public, clock)
	first, _ := a.GetLeaf(host(t, "h.test"))
	now = now.Add(leafLife - leafRenewal - time.Minute)
	if again, _ := a.GetLeaf(host(t, "h.test")); again != first {
		t.Error("the leaf was renewed too early")
	}
	now = now.Add(2 * time.Minute)
	if again, _ := a.GetLeaf(host(t, "h.test")); again == first {
		t.Error("the leaf was not renewed")
	}
	now = a.Certificate().NotAfter.Add(-caRenewal + time.Minute)
	if b := open2(t, private, public, clock); b.Certificate().Equal(a.Certificate()) {
		t.Error("the authority was not renewed")
	}
}

// TestClockJumps: whatever the clock is set to, the leaf that a client gets is valid at that time.
func TestClockJumps(t *testing.T) {
	start := time.Now()
	now := start
	a := open2(t, t.TempDir(), t.TempDir(), func() time.Time { return now })
	for _, jump := range []time.Duration{0, 400 * 24 * time.Hour, time.Minute, 3 * 24 * time.Hour, 24 * time.Hour, -30 * time.Minute, 5 * 365 * 24 * time.Hour, 0} {
		now = start.Add(jump)
		c, err := a.GetLeaf(host(t, "h.test"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(a.Certificate())
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "h.test", CurrentTime: now}); err != nil {
			t.Errorf("after a jump to %v: %v", jump, err)
		}
	}
}

func TestNoHost(t *testing.T) {
	a := open2(t, t.TempDir(), t.TempDir(), nil)
	for _, name := range []string{"", "127.0.0.1", "a..b", "a b", "*.test", "[::1]"} {
		if _, err := a.GetCertificate(&tls.ClientHelloInfo{ServerName: name}); !errors.Is(err, ErrNoHost) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
