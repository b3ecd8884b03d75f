package serverslot

import (
	"strings"
	"testing"
)

// What Deno prints when an installation fails becomes one line that says why.
func TestCause(t *testing.T) {
	for output, want := range map[string]string{
		"Download https://packages.example.com/x\nerror: Failed caching npm package 'probe@1.0.0'\n" +
			"    0: Tarball checksum did not match what was provided by npm registry for probe@1.0.0.\n       \n       Expected: a\n": otherBytes + "Failed caching npm package 'probe@1.0.0': Tarball checksum did not match what was provided by npm registry for probe@1.0.0: Expected: a",
		"error: npm package 'nothing' does not exist.":                      "npm package 'nothing' does not exist",
		"error: one\nerror: Import failed\n\nCaused by:\n    404 Not Found": "Import failed: 404 Not Found",
		"error: No solution found when resolving dependencies\n  cause: Because the current Python version (3.11.2) does not satisfy Python>=3.12 and a==1 depends on Python>=3.12, we can conclude that a==1 cannot be used.\n": "The package wants Python >=3.12, and the sandbox has 3.11.2. In embedded mode, PYTHON_PATH can name another interpreter: " +
			"No solution found when resolving dependencies: Because the current Python version (3.11.2) does not satisfy Python>=3.12 and a==1 depends on Python>=3.12, we can conclude that a==1 cannot be used",
		"error: Failed to download `a==1`\n  cause: Hash mismatch for `a==1`\n\n         Expected:\n           sha256:00\n": otherBytes + "Failed to download `a==1`: Hash mismatch for `a==1`: Expected:: sha256:00",
		"error: No solution found\n  cause: Because a==1 has no usable wheels and you require a==1\n": "A dependency has only a source distribution, and building it would run its code: " +
			"No solution found: Because a==1 has no usable wheels and you require a==1",
		"": "", "Download https://packages.example.com/x": "",
		"error: " + strings.Repeat("x", 9999): strings.Repeat("x", maxCause),
	} {
		if got := findCause(output); got != want {
			t.Errorf("%.300q\nis %.300q\nwant %.300q", output, got, want)
		}
	}
}
