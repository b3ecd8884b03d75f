package cli

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestPropose: what was served becomes rules by which all of it passes, and no other method or shape of a path.
func TestPropose(t *testing.T) {
	a := &catalog.API{Name: "pay", Credentials: []catalog.Credential{{Name: "PAY_TOKEN", Surfaces: []catalog.Surface{
		{Kind: catalog.SurfaceHeader}, {Kind: catalog.SurfaceQuery, Field: "key"},
	}}}}
	var list []proxyapi.Exchange
	served := func(method, path string) {
		list = append(list, proxyapi.Exchange{Run: fmt.Sprint("r", len(list)%3), Method: method, URL: "https://pay.test" + path + "?limit",
			Swapped: []proxyapi.Swap{{Name: "PAY_TOKEN", In: "header:Authorization"}}})
	}
	for i := range 5 {
		served("GET", fmt.Sprint("/v1/customers/cus_9s6XKzkNRiz8i", i))
		served("GET", fmt.Sprint("/v1/charges/", 1000+i, "/refunds"))
	}
	served("GET", "/v1/charges")
	for _, repo := range []string{"acme/site", "acme/api", "acme/docs", "other/tool"} {
		served("GET", "/repos/"+repo+"/issues")
	}
	served("POST", "/v1/refunds")
	served("POST", "/v1/refunds")
	served("POST", "/v1/payouts")
	for _, path := range []string{"/v1/**", "/v1/*/refunds", "/v1/%2A%2a", "/v1/a*"} { // as a rule it would permit more
		served("DELETE", path)
	}
	p := proposeRules(a, list)
	got := map[string]int{}
	for _, r := range p.Rules {
		got[r.Text] = r.Requests
	}
	want := map[string]int{
		"allow GET /v1/customers/*": 5, "allow GET /v1/charges/*/refunds": 5, "allow GET /v1/charges": 1,
		"allow GET /repos/acme/*/issues": 3, "allow GET /repos/other/tool/issues": 1,
		"allow POST /v1/refunds": 2, "allow POST /v1/payouts": 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rules %v", got)
	}
	if p.Requests != len(list) || p.Runs != 3 || !reflect.DeepEqual(p.Unused, []string{"PAY_TOKEN in query:key"}) {
		t.Errorf("%+v", p)
	}
	if p.Rules[0].Requests != 5 || string(p.Rules[len(p.Rules)-1].Rule) == "" {
		t.Errorf("order: %+v", p.Rules)
	}
}

// TestIsID: what varies in a path, and what names something.
func TestIsID(t *testing.T) {
	for s, want := range map[string]bool{
		"42": true, "0": true, "3f9a1c0b7d2e": true, "cus_9s6XKzkNRiz8i3": true, "6ba7b810-9dad-11d1-80b4-00c04fd430c8": true,
		"v1": false, "v2beta1": false, "customers": false, "2fa": false, "deadbeef": false, "": false, "oauth2": false, "issues": false,
	} {
		if isID(s) != want {
			t.Errorf("%q: %t", s, !want)
		}
	}
}
