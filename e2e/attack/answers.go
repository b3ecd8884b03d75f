package attack

import (
	"fmt"
	"strings"
)

// Judges of answers, and of what left with requests.

// survives: whatever came out, the run answered; the suite's later attacks show that the proxy lives.
func survives(e *Evidence) (string, bool) {
	return e.brief(), e.Failed == nil && len(e.Arrived) > 0
}

// broken: the credential was sent, nothing leaked, and the code got no complete answer of status 200.
func broken(e *Evidence) (string, bool) {
	if seen, held := scrubbed("HTTPBIN_TOKEN", false)(e); !held {
		return seen, false
	}
	for _, l := range e.lines() {
		if l.Error == "" && l.Status < 500 {
			return fmt.Sprintf("a complete answer of %d bytes", l.Length), false
		}
	}
	return e.brief(), true
}

// redactMe is a REDACTING_STRINGS of the suite's worlds.
const redactMe = "redact-me-please"

// unredacted: what arrived does not hold the redacted string.
func unredacted(e *Evidence) (string, bool) {
	if len(e.Arrived) == 0 {
		return "did not arrive: " + e.brief(), false
	}
	for _, s := range e.Arrived {
		if strings.Contains(fmt.Sprint(s.Target, s.Header, string(s.Body)), redactMe) {
			return "the string arrived", false
		}
	}
	if strings.Contains(e.Result.Out, "came back") {
		return "the string came back", false
	}
	return "replaced before it left", true
}

// stuck: nothing of the trial was asked for outside has the value in it, and the code was told of a failure. That the
// value arrived nowhere is for misplaced to see.
func stuck(e *Evidence) (string, bool) {
	for _, name := range e.World.Upstream.Asked() {
		if where := e.World.Leak(name); where != "" {
			return "ASKED: " + where, false
		}
	}
	ls := e.lines()
	for _, l := range ls {
		if l.Error == "" && l.Status < 400 {
			return "answered: " + e.brief(), false
		}
	}
	return e.brief(), len(ls) > 0
}

// logged: the log line of a broken answer, which quotes the upstream, has no credential in it.
func logged(e *Evidence) (string, bool) {
	if !e.got("HTTPBIN_TOKEN") {
		return "the credential never reached the upstream: " + e.brief(), false
	}
	var own strings.Builder
	for line := range strings.Lines(e.World.Logs()) {
		if strings.Contains(line, e.Result.Receipt.Run) {
			own.WriteString(line)
		}
	}
	if !strings.Contains(own.String(), "malformed") {
		return "the log does not quote the upstream", false
	}
	return searched(e.World, own.String())
}

// reached: a request arrived; that the value is not in it is for misplaced to see.
func reached(e *Evidence) (string, bool) { return e.brief(), len(e.Arrived) > 0 }

// documented: what docs/security/limits.md lists is so.
func documented(e *Evidence) (string, bool) { return "as documented", e.got("HTTPBIN_TOKEN") }
