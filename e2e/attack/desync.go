package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// desync are bodies that a server does not read and takes for the next request, headers that are taken off behind the
// policy's back, and requests that are answered without it.
func desync() []Attack {
	var list []Attack
	for _, m := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT", "PATCH", "PURGE"} {
		list = append(list, Attack{
			Section: "A", Name: m + " with a body that a server takes for the next request", Expected: "nothing behind it", Judge: lastOfItsWire("X-Body: unread-" + m),
			Code: fmt.Sprintf(`await raw("other.test", "other.test", "%s /anything?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nX-Body: unread-%[1]s\r\nContent-Length: 41\r\nConnection: close\r\n\r\nGET /anything/smuggled HTTP/1.1\r\nX-A: bcd"); for (let i = 0; i < 4; i++) await show(fetch("https://other.test/x/ok?t=TRIAL"));`, m),
		})
	}
	for _, m := range []string{"DELETE", "POST"} {
		list = append(list, Attack{
			Section: "A", Name: "the credential in the body of a request inside a " + m, Expected: "every request arrives as it was sent", Judge: unswallowed,
			Code: fmt.Sprintf(`const inner = "POST /x/store?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nContent-Length: 90\r\n\r\n";
await show(fetch("https://httpbin.test/x/deaf?t=TRIAL", { method: %q, body: inner }));
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));`, m),
		})
	}
	for _, h := range []string{"close, Content-Type", "Content-Type", "keep-alive,\\tcontent-type", "close\\r\\nConnection: Content-Type"} {
		list = append(list, Attack{
			Section: "A", Name: "Connection: " + h + ", on a form that overrides the method", Expected: "refused, nothing sent", Judge: refused("bad_request"),
			Code: fmt.Sprintf(`await raw("shared.test", "shared.test", "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\nConnection: %s\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nmethod=DELETE", { ms: 2500 });`, h),
		})
	}
	return append(list,
		Attack{Section: "A", Name: "OPTIONS *, before a request that is refused", Expected: "refused, on the record", Judge: counted(2),
			Code: `await raw("httpbin.test", "httpbin.test", "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: httpbin.test\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");`},
		Attack{Section: "A", Name: "the answer to another run's request", Expected: "no connection is used by two runs", Do: twoRuns},
		Attack{Section: "B", Name: "slices by Request-Range", Expected: "dropped with the credential", Judge: rangeless("Request-Range"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "Request-Range": "bytes=0-3" } })));`},
		Attack{Section: "B", Name: "slices by X-Ms-Range", Expected: "dropped with the credential", Judge: rangeless("X-Ms-Range"),
			Code: `await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN", { headers: { "x-ms-range": "bytes=0-3" } })));`},
	)
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

// twoRuns asks from two runs, one after the other: what a server leaves behind its answer to the first, which code may
// choose, must not lie on the connection of the second.
func twoRuns(ctx context.Context, w *world.World) (string, bool) {
	trial := mark()
	for _, run := range []string{"one", "two"} {
		e := &Evidence{World: w, Trial: trial}
		e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 20,
			Code: prelude + fmt.Sprintf(`for (let i = 0; i < 3; i++) await show(fetch("https://other.test/x/ok?t=%s&run=%s"));`, trial, run)})
		if e.Failed != nil || len(e.lines()) != 3 {
			return e.brief(), false
		}
	}
	connections := 0
	for _, c := range w.Upstream.Wires(upstream.Other) {
		one, two := strings.Contains(string(c.Bytes), trial+"&run=one"), strings.Contains(string(c.Bytes), trial+"&run=two")
		if one && two {
			return "both runs on one connection", false
		}
		if one || two {
			connections++
		}
	}
	return fmt.Sprintf("%d connections", connections), connections >= 2
}
