package pool

import (
	"slices"
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"api.example.com", "api.example.com"}, {"b.example,a.example", "a.example,b.example"},
		{"a.example,a.example", "a.example"}, {"*.a.example", "*.a.example"}, {"a.example,*", "*"}, {"_x.a-b.example", "_x.a-b.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"}, {"localhost", "localhost"}, {"1a.example", "1a.example"}, {"localhost:3000,*.a.example:8443,localhost", "*.a.example:8443,localhost,localhost:3000"},
	} {
		var list []string
		if c.in != "" {
			list = strings.Split(c.in, ",")
		}
		s, err := parseHosts(list)
		if err != nil || strings.Join(s.SortedHosts(), ",") != c.want {
			t.Errorf("%q: %q %v", c.in, s.SortedHosts(), err)
		}
	}
	for _, bad := range []string{
		"", " ", "a.example ", "A.example", "a..example", ".a.example", "a.example.", "a,b", "a.example:443", "a.example:0", "a.example:08443", "a.example:8443:1", ":8443", "u@a.example", "http://a.example",
		"a/b", "a\nb", "a\x00b", "--allow-run", "-a.example", "a-.example", "*", "127.0.0.1", "1.2.3", "0x7f.1", "[::1]", "::1", "*.", "*.*.a",
		"a.*.b", "**.a", "bücher.example", "a%2eb", strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "example", "=", "a b",
	} {
		if s, err := parseHosts([]string{"ok.example", bad}); err == nil && bad != "*" {
			t.Errorf("%q is taken: %q", bad, s.SortedHosts())
		}
	}
	if _, err := parseHosts(slices.Repeat([]string{"a.example"}, maxHosts+1)); err == nil {
		t.Error("too many hosts are taken")
	}
}

func TestHostsHash(t *testing.T) {
	parse := func(l ...string) hostSet {
		s, err := parseHosts(l)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if parse("a.example", "b.example").HashHosts() != parse("b.example", "a.example").HashHosts() {
		t.Error("the order counts")
	}
	seen := map[string]bool{}
	for _, s := range []hostSet{{}, parse("a.example"), parse("a.example", "b.example"), parse("*.a.example"), parse("*")} {
		if seen[s.HashHosts()] {
			t.Errorf("%v has another's hash", s.SortedHosts())
		}
		seen[s.HashHosts()] = true
	}
}
