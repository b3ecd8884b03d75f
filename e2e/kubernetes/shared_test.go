package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestShared: what holds of a release in which all sandboxes share a proxy, in namespaces that PodSecurity restricts.
func TestShared(t *testing.T) {
	w := start(t, world.Config{Shared: true, Pods: 3})
	for _, check := range []struct {
		name string
		do   func(*testing.T, *world.World)
	}{
		{"the key is the proxy's alone", keyIsTheProxysAlone},
		{"skills", shippedSkills},
	} {
		t.Run(check.name, func(t *testing.T) { check.do(t, w) })
	}
	_ = fmt.Sprint
	_ = strings.Contains
	_ = testkit.Must
}
