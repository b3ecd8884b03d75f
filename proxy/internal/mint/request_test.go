package mint

import (
	"net/url"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestReaching: the client certificate of an API is for its own hosts, and not for the server that gives its tokens.
func TestReaching(t *testing.T) {
	exact, err := catalog.ParseHostPattern("api.pay.example")
	if err != nil {
		t.Fatal(err)
	}
	wild, err := catalog.ParseHostPattern("*.pay.example")
	if err != nil {
		t.Fatal(err)
	}
	api := &catalog.API{Name: "pay", Hosts: []catalog.HostPattern{exact, wild}, ClientCert: &catalog.ClientCert{Cert: []byte("x")}}
	for address, shown := range map[string]bool{
		"https://api.pay.example/token": true, "https://login.pay.example/token": true, "https://api.pay.example:443/": true,
		"https://api.pay.example:8443/": false, "https://login.other.example/token": false, "https://pay.example/": false,
		"https://a.b.pay.example/": false, "https://[::1]/": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		got := (&requester{api: api}).chooseAPI(u)
		if (got.ClientCert != nil) != shown || shown != (got.Name == api.Name) {
			t.Errorf("%s: %+v", address, got)
		}
	}
	if api.ClientCert == nil {
		t.Error("the catalog's API was changed")
	}
}
