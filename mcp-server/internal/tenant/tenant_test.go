package tenant

import (
	"errors"
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestNarrow: no list of APIs of a run leads beyond those of its tenant, and none becomes the empty one, which stands
// for all.
// Promise: tenant-apis
func TestNarrow(t *testing.T) {
	own := &Tenant{Tenant: tokenfile.Tenant{Name: "a", APIs: []string{"x", "y"}}}
	for _, c := range []struct {
		of         *Tenant
		apis, want []string
		closed     bool
		err        error
	}{
		{own, nil, []string{"x", "y"}, true, nil},
		{own, []string{}, []string{"x", "y"}, true, nil},
		{own, []string{"y", "z"}, []string{"y"}, true, nil},
		{own, []string{"z"}, nil, true, ErrNotYours},
		{own, []string{""}, nil, true, ErrNotYours},
		{own, []string{"*"}, nil, true, ErrNotYours},
		{&Tenant{}, nil, nil, false, nil},
		{&Tenant{}, []string{"z"}, []string{"z"}, false, nil},
		{nil, nil, nil, false, nil},
		{nil, []string{"z"}, []string{"z"}, false, nil},
	} {
		got, closed, err := c.of.NarrowAPIs(c.apis)
		if !slices.Equal(got, c.want) || closed != c.closed || !errors.Is(err, c.err) {
			t.Errorf("%q of %+v: %q %v %v", c.apis, c.of, got, closed, err)
		}
	}
	cat := proxyapi.Catalog{Version: "1", APIs: []proxyapi.API{{Name: "x"}, {Name: "z"}}, Problems: []proxyapi.CatalogProblem{{API: "z"}}}
	if v := own.NarrowCatalog(cat); len(v.APIs) != 1 || v.APIs[0].Name != "x" || v.Problems != nil || len(cat.APIs) != 2 || cat.APIs[1].Name != "z" {
		t.Errorf("%+v of %+v", v, cat)
	}
	if own.SessionName("s") == (&Tenant{Tenant: tokenfile.Tenant{Name: "b"}}).SessionName("s") || TenantOf(own.SessionName("s")) != "a" || TenantOf("s") != "" || TenantOf("10.0.0.1 @b x") != "" {
		t.Error("sessions of tenants are not told apart")
	}
}
