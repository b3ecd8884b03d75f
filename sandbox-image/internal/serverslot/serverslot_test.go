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
		"": "", "Download https://packages.example.com/x": "",
		"error: " + strings.Repeat("x", 9999): strings.Repeat("x", maxCause),
	} {
		if got := findCause(output); got != want {
			t.Errorf("%.300q\nis %.300q\nwant %.300q", output, got, want)
		}
	}
}
