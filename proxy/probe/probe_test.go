package probe

import (
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestNew: the credential goes in clear text only to a port of its own at which the API allows that.
func TestNew(t *testing.T) {
	tokens := []proxyapi.Token{{Name: "X_TOKEN", In: []string{"body:key", "header"}}}
	for domain, want := range map[string]string{
		"a.example": "https://a.example/", "localhost:3000": "http://localhost:3000/",
	} {
		p, err := New(proxyapi.API{Domains: []string{"*.example", domain}, AllowHTTP: true, Credentials: tokens}, "/")
		if err != nil || p.URL != want || p.Value != "Bearer X_TOKEN" {
			t.Errorf("%s: %+v, %v", domain, p, err)
		}
	}
}

// TestUnclear: an API that answers 404 may not have looked at the credential; without a credential the API is reached.
func TestUnclear(t *testing.T) {
	x := proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 404}
	if v := (Probe{}).ExplainReceipt(proxyapi.Receipt{Exchanges: []proxyapi.Exchange{x}}, ""); !v.OK || v.Unclear {
		t.Errorf("no credential: %+v", v)
	}
	x.Swapped = []proxyapi.Swap{{Name: "X_TOKEN"}}
	if v := (Probe{Token: "X_TOKEN"}).ExplainReceipt(proxyapi.Receipt{Exchanges: []proxyapi.Exchange{x}}, ""); v.OK || !v.Unclear {
		t.Errorf("%+v", v)
	}
}

// TestStale: an API whose file is broken is not tried with the configuration before it.
func TestStale(t *testing.T) {
	_, err := New(proxyapi.API{Name: "shop", Domains: []string{"shop.test"}, Stale: true}, "/")
	if err == nil || !strings.Contains(err.Error(), "apis/shop/config.json has a mistake") {
		t.Errorf("%v", err)
	}
}

// TestHints: a refusal by a rule leads to --path, and a hint of the proxy replaces the list of usual causes.
func TestHints(t *testing.T) {
	for code, outcome := range map[string]string{"rule_refused": proxyapi.OutcomeDenied, "upstream_certificate": proxyapi.OutcomeFailed} {
		v := (Probe{API: "shop"}).ExplainReceipt(proxyapi.Receipt{
			Exchanges: []proxyapi.Exchange{{Outcome: outcome, Code: code}}, Hints: []proxyapi.Hint{{Text: "A reason."}},
		}, "")
		path := slices.Contains(v.Hints, "Name a path that the API permits: codeforge api test shop --path PATH")
		if v.OK || strings.Contains(v.Text, "ca_file") || path != (code == "rule_refused") {
			t.Errorf("%s: %+v", code, v)
		}
	}
}

// TestScript: a host or path cannot break out of the script.
func TestScript(t *testing.T) {
	p := Probe{Method: "GET", URL: `https://a.example/"); evil(); ("`, Header: "A", Value: "b\"\n"}
	got := p.Script()
	if strings.Contains(got, `"); evil(); ("`) && !strings.Contains(got, `\"); evil(); (\"`) {
		t.Errorf("it broke out: %s", got)
	}
}

// TestVerdict: the verdict says what happened and what to do.
func TestVerdict(t *testing.T) {
	p := Probe{Method: "GET", URL: "https://a.example/", Token: "X_TOKEN"}
	swapped := []proxyapi.Swap{{Name: "X_TOKEN", In: "header:Authorization"}}
	for _, row := range []struct {
		name string
		x    *proxyapi.Exchange
		ok   bool
		says string
	}{
		{"good", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 200, Swapped: swapped}, true, "X_TOKEN was swapped"},
		{"not found", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 404, Swapped: swapped}, false, "--path"},
		{"elsewhere", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 302, Swapped: swapped}, false, "does not show"},
		{"not that method", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 405, Swapped: swapped}, false, "does not show"},
		{"wrong credential", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 401, Swapped: swapped}, false, "check the credential"},
		{"forbidden", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 403, Swapped: swapped}, false, "permission"},
		{"their fault", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 503, Swapped: swapped}, false, "server error"},
		{"not swapped", &proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Status: 200}, false, "config.json"},
		{"refused", &proxyapi.Exchange{Outcome: proxyapi.OutcomeDenied, Status: 403, Code: "method_restricted"}, false, "method_restricted"},
		{"unreachable", &proxyapi.Exchange{Outcome: proxyapi.OutcomeFailed, Status: 502, Code: "upstream_tls"}, false, "ca_file"},
		{"hung up on", &proxyapi.Exchange{Outcome: proxyapi.OutcomeAborted, Status: 200, Code: "client_gone", Swapped: swapped}, true, "X_TOKEN was swapped"},
		{"hung up before", &proxyapi.Exchange{Outcome: proxyapi.OutcomeAborted, Code: "client_gone"}, false, "client_gone"},
		{"never sent", nil, false, "no request reached the proxy"},
	} {
		var r proxyapi.Receipt
		if row.x != nil {
			r.Exchanges = []proxyapi.Exchange{*row.x}
		}
		if v := p.ExplainReceipt(r, ""); v.OK != row.ok || !strings.Contains(v.Text, row.says) {
			t.Errorf("%s: %+v, want %v saying %q", row.name, v, row.ok, row.says)
		}
	}
}
