package server

import "strings"

// maxCause bounds what is said about a failed installation, in bytes.
const maxCause = 500

// otherBytes is said first of a package that is not what it was.
const otherBytes = "The registry answers other bytes than the lock file of the first installation has, or than it " +
	"says itself. Find out why before you trust them: "

// cause is, in one line, what Deno said behind its last "error: ". It puts each underlying error on a line of its own,
// behind its number. It is empty if Deno said none.
func cause(output string) string {
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
