//go:build disarm

package setuppage

import "testing"

// TestDisarmed: without its defence, each attack reaches the page. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	for _, name := range []string{"setup-user", "setup-host", "setup-origin", "setup-link", "setup-once", "setup-frames"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", name)
			for _, a := range attacks {
				if a.defence != name {
					continue
				}
				v := open(t)
				v.useLink(t)
				if !a.mount(t, v) {
					t.Errorf("%s: the attack is stopped by something else", a.name)
				}
			}
		})
	}
}
