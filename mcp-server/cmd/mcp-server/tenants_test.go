package main

import (
	"log/slog"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
)

// TestReplaceTenants: an unchanged tenant keeps its state, and each tenant is there once.
func TestReplaceTenants(t *testing.T) {
	s := &tenantSet{daemon: &daemon{log: slog.New(slog.DiscardHandler)}}
	s.replaceTenants([]tokenfile.Tenant{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	before := s.list
	s.replaceTenants([]tokenfile.Tenant{{Name: "a"}, {Name: "b", Runs: 2}})
	if len(before) != 3 || len(s.list) != 2 || s.list[0] != before[0] || s.list[1] == before[1] || s.list[1].Runs != 2 {
		t.Errorf("%v, then %v", before, s.list)
	}
}
