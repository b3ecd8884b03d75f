package main

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// Descriptor numbers do not depend on chance: interpreters start whatever other descriptors sandboxd, or the Go runtime
// in the programs that it starts, has open.
func TestDescriptors(t *testing.T) {
	for name, o := range map[string]Options{
		"no cgroup file can be read":         {NoSys: true},
		"standard streams closed":            {Closed: true},
		"both":                               {NoSys: true, Closed: true},
		"many slots, so that numbers run up": {NoSys: true, Slots: 40},
	} {
		t.Run(name, func(t *testing.T) {
			RunInModes(t, func(t *testing.T, m Mode) {
				o.Mode, o.Warm = m, 1
				w := StartWorld(t, o)
				if r := w.RunCode(t, "console.log(6 * 7);\n", testkit.Patience); r.Stdout != "42\n" {
					t.Errorf("%+v\n%s", r, w.ReadLog())
				}
			})
		})
	}
}
