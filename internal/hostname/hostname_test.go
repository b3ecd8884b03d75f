package hostname

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// long is a host name of exactly n bytes, for n ending a label well.
func long(n int) string {
	s := strings.Repeat("abcdefghi.", 30)
	return s[:n-3] + "com"
}

func TestParse(t *testing.T) {
	must := map[string]string{
		"api.stripe.com":           "api.stripe.com",
		"API.Stripe.COM":           "api.stripe.com",
		"api.stripe.com.":          "api.stripe.com",
		"localhost":                "localhost",
		"GITLAB":                   "gitlab",
		"_dmarc.example.com":       "_dmarc.example.com",
		"foo_bar.example.com":      "foo_bar.example.com",
		"r3---sn-x.example.com":    "r3---sn-x.example.com",
		"1.example.com":            "1.example.com",
		"1.2.3.4.example.com":      "1.2.3.4.example.com",
		"0x.example":               "0x.example",
		"a1b2.3c":                  "a1b2.3c",
		"bücher.example":           "xn--bcher-kva.example",
		"BÜCHER.example":           "xn--bcher-kva.example",
		"xn--bcher-kva.example":    "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":    "xn--bcher-kva.example",
		"faß.example":              "xn--fa-hia.example",
		"ＡＰＩ.example.com":          "api.example.com",
		"api。example。com":          "api.example.com",
		"例え.テスト":                   "xn--r8jz45g.xn--zckzah",
		long(253):                  long(253),
		long(253) + ".":            long(253),
		strings.Repeat("a", 63):    strings.Repeat("a", 63),
		"co.uk":                    "co.uk",
		"metadata.google.internal": "metadata.google.internal",
	}
	for in, want := range must {
		if got, err := Parse(in); err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	mustNot := []string{
		"", ".", "..", "example..com", ".example.com", "example.com..",
		"example.com:443", "example.com:", ":443", "user@example.com", "user:pass@example.com",
		"https://example.com", "//example.com", "example.com/", "example.com/path", `example.com\@evil.com`, "example.com?x", "example.com#x",
		"exam\x00ple.com", "example.com\x00.evil.com", "example.com\n", "example.com\r\nHost: x", " example.com", "example.com ", "exam ple.com", "\texample.com",
		"ex%61mple.com", "example.com%00", "example.com%2eevil.com", "ex％61mple.com", "example．com／evil",
		"*.example.com", "*", "a*.example.com", "＊.example.com",
		"127.0.0.1", "127.0.0.1.", "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "1.2.3.4.5", "example.1", "example.0x1f", "example.0x",
		"１２７.0.0.1", "127。0。0。1", "[::1]", "::1", "[::ffff:127.0.0.1]", "fe80::1%eth0", "[fe80::1%25eth0]", "[example.com]",
		"-example.com", "example-.com", "example.-com", "example.com-",
		strings.Repeat("a", 64) + ".com", long(254), strings.Repeat("a.", 600) + "com",
		"xn--", "xn--a.example", "xn--\x80.example", "ex\u2024\u2024ample.com", "exa\xffmple.com", "exa\ufffdmple.com", "xn--example-2e14b.com", "\u202eexample.com",
		"example.com,evil.com", "example.com;evil", "(example.com)", "exa'mple.com", `"example.com"`, "example.com~", "$(id).example.com",
	}
	for _, in := range mustNot {
		if got, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q; want it refused", in, got)
		} else if got != (Host{}) {
			t.Errorf("Parse(%q) gave %q with its error", in, got)
		}
	}
	if len(mustNot) < len(must) {
		t.Errorf("%d must-not rows for %d must rows", len(mustNot), len(must))
	}
}

func TestParsePattern(t *testing.T) {
	must := map[string]string{
		"api.stripe.com": "api.stripe.com", "API.stripe.com.": "api.stripe.com", "*.Example.com": "*.example.com",
		"*.a.example.co.uk": "*.a.example.co.uk", "*.bucket.s3.amazonaws.com": "*.bucket.s3.amazonaws.com",
		"s3.amazonaws.com": "s3.amazonaws.com", "octocat.github.io": "octocat.github.io", "localhost": "localhost", "gitlab": "gitlab",
		"*.corp.internal": "*.corp.internal", "*.bücher.example": "*.xn--bcher-kva.example",
		"localhost:3000": "localhost:3000", "ES.lan.:9200": "es.lan:9200", "*.Example.com:8443": "*.example.com:8443", "a:1": "a:1", "a:65535": "a:65535",
	}
	for in, want := range must {
		if got, err := ParsePattern(in); err != nil || got.String() != want {
			t.Errorf("ParsePattern(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	mustNot := []string{
		"", "*", "*.", "*.com", "*.co.uk", "*.github.io", "*.GITHUB.io.", "*.s3.amazonaws.com", "*.herokuapp.com", "*.internal", "*.localhost",
		"co.uk", "com.au", "*.*.example.com", "**.example.com", "*example.com", "a.*.example.com", "*.1.2.3.4", "*.127.0.0.1", "*.example.com:443",
		"*..example.com", "*. example.com", "*.example.com/", "*." + long(253), "https://*.example.com", "*.公司.cn",
		"example.com:443", "example.com:80", "example.com:53", "example.com:0", "example.com:00", "example.com:65536", "example.com:08443", "example.com:+1",
		"example.com:-1", "example.com: 1", "example.com:1 ", "example.com:0x50", "example.com:8443:1", "example.com:", ":8443", "example.com:８４４３", "127.0.0.1:8443",
		"[::1]:8443", "::1:8443", "user@example.com:8443", "example.com:8443/", "*.com:8443", "*:8443", "co.uk:8443",
	}
	for _, in := range mustNot {
		if got, err := ParsePattern(in); err == nil {
			t.Errorf("ParsePattern(%q) = %q; want it refused", in, got)
		}
	}
}

// TestPorts: a host at a port is another host, and one at 443 or 80 is that of the name alone.
// Promise: one-host-one-port
func TestPorts(t *testing.T) {
	h, err := Parse("es.lan")
	if err != nil {
		t.Fatal(err)
	}
	at := h.AtPort(9200)
	if at == h || at.String() != "es.lan:9200" || at.Name() != "es.lan" || at.Port() != 9200 || at.Parent() != "lan" || at.AtPort(9201) == at {
		t.Errorf("%v at 9200 is %q, name %q, port %d", h, at, at.Name(), at.Port())
	}
	if h.AtPort(443) != h || h.AtPort(80) != h || at.AtPort(443) != h || (Host{}).AtPort(9200) != (Host{}) {
		t.Errorf("%q %q %q %q", h.AtPort(443), h.AtPort(80), at.AtPort(443), Host{}.AtPort(9200))
	}
	if at.ExactPattern().String() != "es.lan:9200" || at.WildcardPattern().String() != "*.lan:9200" || at.WildcardPattern().Port() != 9200 || at.WildcardPattern().Name() != "*.lan" || h.ExactPattern().Port() != 0 {
		t.Errorf("patterns %q %q", at.ExactPattern(), at.WildcardPattern())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"api.stripe.com", "BÜCHER.example.", "127.1", "a..b", "xn--bcher-kva", "*.x.com", "１.２", "a\u00adb.com", "\u200dx.com", "xn--ls8h.la"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := Parse(s)
		if err != nil {
			return
		}
		name := h.String()
		if again, err := Parse(name); err != nil || again != h {
			t.Fatalf("Parse(%q) = %q, which parses as %q, %v", s, name, again, err)
		}
		if dotted, err := Parse(strings.ToUpper(name) + "."); err != nil || dotted != h {
			t.Fatalf("%q in capitals with a dot is %q, %v", name, dotted, err)
		}
		if _, err := netip.ParseAddr(name); err == nil || net.ParseIP(name) != nil {
			t.Fatalf("Parse(%q) = %q, an address", s, name)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 {
			t.Fatalf("Parse(%q) = %q", s, name)
		}
		if u, err := url.Parse("https://" + name + "/"); err != nil || u.Hostname() != name || u.Port() != "" {
			t.Fatalf("%q is not its own host in a URL: %v", name, err)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"*.example.com", "*.github.io", "x", "*.*.x.com", "*.xn--bcher-kva.de", "x:1", "*.x.com:65535", "x:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Fatalf("ParsePattern(%q) = %q, which parses as %q, %v", s, p, again, err)
		}
		suffix, wild := strings.CutPrefix(p.Name(), "*.")
		if !wild {
			return
		}
		if h, err := Parse("a." + suffix); err == nil && h.AtPort(p.Port()).WildcardPattern() != p {
			t.Fatalf("%q does not stand for %q", p, h)
		}
	})
}
