package serverslot

import "strings"

// maxCause bounds the cause of a failed installation, in bytes.
const maxCause = 500

// otherBytes precedes the cause if a package has changed.
const otherBytes = "The registry sends other bytes than the lock file of the first installation has, or than its " +
	"own checksum says. Find the cause before you trust them: "

// findCause returns, in one line, the text that Deno printed after its last "error: ", or "" if there is no such text.
// Deno prints each underlying error on a separate line, after its number.
func findCause(output string) string {
	const mark = "error: "
	at := strings.LastIndex(output, mark)
	if at < 0 {
		return ""
	}
	var parts []string
	for line := range strings.Lines(output[at+len(mark):]) {
		line = strings.TrimSpace(line)
		if number, rest, ok := strings.Cut(line, ": "); ok && strings.Trim(number, "0123456789") == "" {
			line = rest
		}
		if line != "" && line != "Caused by:" {
			parts = append(parts, strings.TrimSuffix(line, "."))
		}
	}
	said := strings.Join(parts, ": ")
	if strings.Contains(said, "checksum did not match") {
		said = otherBytes + said
	}
	return said[:min(len(said), maxCause)]
}
