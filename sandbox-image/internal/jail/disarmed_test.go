//go:build disarm

package jail

import "testing"

// TestDisarmed: without its defence the attack succeeds. e2e/negative runs it with the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("package-wheels", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "package-wheels")
		r := newWheelRig(t)
		r.index.addFile("probe-1.0.0.tar.gz", sourceDistribution(t))
		out, err := r.install(t, "pypi:probe@1.0.0", t.TempDir())
		if !r.hasRun() {
			t.Errorf("the attack is stopped by something else: %v: %s", err, out)
		}
	})
}
