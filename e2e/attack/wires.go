package attack

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Judges of which requests arrived, on which connections.

// undialled: nothing came to a loopback address under that name, and the code was told that the address is refused.
func undialled(name string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, w := range e.World.Upstream.Wires("") {
			host, err := netip.ParseAddrPort(w.Local)
			if err == nil && host.Addr().IsLoopback() {
				return "a connection arrived at " + w.Local, false
			}
		}
		for _, l := range e.lines() {
			if l.Code != "address_refused" && name != upstream.Rebind {
				return e.brief(), false
			}
		}
		refused := slices.ContainsFunc(e.lines(), func(l line) bool { return l.Code == "address_refused" })
		return e.brief(), refused && (name != upstream.Rebind || len(e.Arrived) > 0)
	}
}

// unsent: connections were tried, none carried a byte of the request.
func unsent(name string) Judge {
	return func(e *Evidence) (string, bool) {
		wires := e.World.Upstream.Wires(name)
		// The upstream may notice a failed handshake after the code does.
		for end := time.Now().Add(patience); len(wires) == 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			wires = e.World.Upstream.Wires(name)
		}
		for _, w := range wires {
			if len(w.Bytes) > 0 {
				return fmt.Sprintf("%d bytes were sent", len(w.Bytes)), false
			}
		}
		ls := e.lines()
		return e.brief() + fmt.Sprintf(", %d handshakes failed", len(wires)), len(ls) == 1 && ls[0].Status == 502 && len(wires) > 0
	}
}

// oneHost: at most one request arrived, under one name in the handshake and in Host.
func oneHost(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if s.Name != s.Host {
			return fmt.Sprintf("Host %s over a connection to %s", s.Host, s.Name), false
		}
	}
	return fmt.Sprintf("%s; %d arrived", e.brief(), len(e.Arrived)), len(e.Arrived) == 1 || e.failed()
}

// literally: the request arrived with the name itself.
func literally(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 || e.got(token) || e.Arrived[0].Header.Get("Authorization") != "Bearer "+token {
			return e.brief(), false
		}
		return "the name arrived literally", true
	}
}

// lastOfItsWire: the request with these words arrived, and no other one behind it on its connection, of any run.
func lastOfItsWire(words string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, w := range e.World.Upstream.Wires(upstream.Other) {
			_, rest, found := strings.Cut(string(w.Bytes), words)
			if !found {
				continue
			}
			if strings.Contains(rest, "Host: ") {
				return "the connection was used again", false
			}
			return e.brief(), len(e.Arrived) == 5
		}
		return "did not arrive: " + e.brief(), false
	}
}

// unsmuggled: each request that arrived is one that the proxy read, judged and wrote down, and has one framing; with
// none is OTHER_TOKEN's value, which judge looks for. A request behind a well-framed first one is an ordinary second
// request.
func unsmuggled(e *Evidence) (string, bool) {
	if seen := e.unaccounted(); seen != "" {
		return seen, false
	}
	for _, s := range e.Arrived {
		framing := s.Header["Content-Length"]
		if len(framing) > 1 || len(framing) == 1 && strings.ContainsAny(framing[0], ",+-x") {
			return "ambiguous length arrived: " + fmt.Sprint(framing), false
		}
		if strings.Contains(string(s.Body), "smuggled") && strings.HasPrefix(string(s.Body), "0\r\n") {
			return "chunk framing arrived as a body", false
		}
	}
	for _, w := range e.World.Upstream.Wires(upstream.HTTPBin) {
		text := string(w.Bytes)
		if !strings.Contains(text, e.Trial) {
			continue
		}
		for request := range strings.SplitSeq(text, " HTTP/1.1\r\n") {
			head, _, _ := strings.Cut(strings.ToLower(request), "\r\n\r\n")
			if strings.Contains(head, "\r\ncontent-length:") && strings.Contains(head, "\r\ntransfer-encoding:") {
				return "both framings arrived", false
			}
		}
	}
	if len(e.lines()) == 0 && len(e.Arrived) == 0 && strings.Contains(e.Result.Out, "Connection specific headers are forbidden") {
		return "the interpreter refuses to send it", true
	}
	if len(e.lines()) == 0 {
		return "nothing printed: " + clip(e.Result.Out, 80), false
	}
	if slices.ContainsFunc(e.Arrived, func(s upstream.Seen) bool { return strings.Contains(s.Target, "smuggled") }) {
		return e.brief() + ", as a request of its own", true
	}
	return e.brief(), len(e.Result.Receipt.Exchanges) > 0 || e.failed()
}

// unaccounted names a request that arrived and is not an exchange of the run's receipt: what the upstream took for a
// request and the proxy did not. Each exchange accounts for one.
func (e *Evidence) unaccounted() string {
	left := slices.Clone(e.Result.Receipt.Exchanges)
	for _, s := range e.Arrived {
		path, _, _ := strings.Cut(s.Target, "?")
		i := slices.IndexFunc(left, func(x proxyapi.Exchange) bool {
			u, err := url.Parse(x.URL)
			return err == nil && x.Outcome != proxyapi.OutcomeDenied && x.Method == s.Method && u.Host == s.Host && u.EscapedPath() == path
		})
		if i < 0 {
			return fmt.Sprintf("a request arrived that the proxy never read as one: %s %s", s.Method, clip(s.Target, 60))
		}
		left = slices.Delete(left, i, i+1)
	}
	return ""
}

// unswallowed: the credential arrived in a request of its own, and in the body of none.
func unswallowed(e *Evidence) (string, bool) {
	held := false
	for _, s := range e.Arrived {
		if strings.Contains(s.Target, "/x/store") {
			return fmt.Sprintf("the body became a request: %s %s, with the body %.80q", s.Method, s.Target, s.Body), false
		}
		held = held || strings.HasPrefix(s.Target, "/anything")
	}
	return e.brief(), held && e.got("HTTPBIN_TOKEN")
}

// counted: the receipt has so many exchanges, and of them only the first was served.
func counted(n int) Judge {
	return func(e *Evidence) (string, bool) {
		c := e.Result.Receipt.Count
		return fmt.Sprintf("%s; %d on the record, %d refused", e.brief(), c.Exchanges, c.Denied), len(e.Arrived) == 1 && c.Exchanges == n && c.Denied == n-1
	}
}

// rangeless: the credential arrived, and the header did not.
func rangeless(name string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, s := range e.Arrived {
			if len(s.Header[name]) > 0 {
				return name + " arrived", false
			}
		}
		return e.brief(), e.got("HTTPBIN_TOKEN")
	}
}
