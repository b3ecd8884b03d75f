package serverslot

import (
	"fmt"
	"regexp"
	"strings"
)

// maxCause bounds the cause of a failed installation, in bytes.
const maxCause = 500

// otherBytes precedes the cause if a package has changed.
const otherBytes = "The registry sends other bytes than the lock file of the first installation has, or than its " +
	"own checksum says. Find the cause before you trust them: "

// wantedPython matches uv's explanation that a package needs another version of Python.
var wantedPython = regexp.MustCompile(`current Python version \(([0-9.]+)\) does not satisfy Python([<>=!~0-9.,*]+)`)

// findCause returns, in one line, the text that the installer printed after its last "error: ", or "" if there is no
// such text. Deno prints each underlying error on a separate line, after its number. uv begins such a line with
// "cause: ".
func findCause(output string) string {
	const mark = "error: "
	at := strings.LastIndex(output, mark)
	if at < 0 {
		return ""
	}
	var parts []string
	for line := range strings.Lines(output[at+len(mark):]) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "cause: ")
		if number, rest, ok := strings.Cut(line, ": "); ok && strings.Trim(number, "0123456789") == "" {
			line = rest
		}
		if line != "" && line != "Caused by:" {
			parts = append(parts, strings.TrimSuffix(line, "."))
		}
	}
	said := strings.Join(parts, ": ")
	switch {
	case strings.Contains(said, "checksum did not match"), strings.Contains(said, "Hash mismatch"):
		said = otherBytes + said
	case strings.Contains(said, "no usable wheels"):
		said = "A dependency has only a source distribution, and building it would run its code: " + said
	}
	if m := wantedPython.FindStringSubmatch(said); m != nil {
		said = fmt.Sprintf("The package wants Python %s, and the sandbox has %s. In embedded mode, PYTHON_PATH can name "+
			"another interpreter: ", m[2], m[1]) + said
	}
	return said[:min(len(said), maxCause)]
}
