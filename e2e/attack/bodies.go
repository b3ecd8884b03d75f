package attack

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strings"
)

// Judges of what became of a request's body and of its places.

// asGet: methods are case-sensitive, but a lower-case "get" may be taken as GET.
func asGet(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if s.Method != "GET" && s.Method != "get" {
			return "arrived as " + s.Method, false
		}
	}
	return e.brief(), len(e.lines()) == 1
}

// overrideUnsent: the proxy refused, and what it may have sent of the request by then was broken off before the
// override.
func overrideUnsent(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if strings.Contains(string(s.Body), "ethod") {
			return "the override arrived", false
		}
		if !strings.Contains(string(s.Body), "[broken off") {
			return "a whole request arrived", false
		}
	}
	ls := e.lines()
	return e.brief(), len(ls) == 1 && ls[0].Status == 403
}

// twoReadings: the proxy refused the body for its readings, and what had left by then was broken off.
func twoReadings(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if !strings.Contains(string(s.Body), "[broken off") {
			return "a whole request arrived", false
		}
	}
	ls := e.lines()
	return e.brief(), len(ls) == 1 && ls[0].Status == 400 && ls[0].Code == "ambiguous_request"
}

// unknownBoundary: the body arrived with a boundary that its author did not choose, and the credential with it, if one
// is named.
func unknownBoundary(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 || token != "" && !e.got(token) {
			return "did not arrive: " + e.brief(), false
		}
		for _, s := range e.Arrived {
			_, params, err := mime.ParseMediaType(s.Header.Get("Content-Type"))
			if err != nil || len(params["boundary"]) < 20 || !strings.HasPrefix(string(s.Body), "--"+params["boundary"]+"\r\n") {
				return "the boundary is its author's", false
			}
		}
		return "a boundary of the proxy's", true
	}
}

// nothingWhole: every attempt was refused with one of the codes, and what had left by then was broken off before the
// override was whole.
func nothingWhole(codes ...string) Judge {
	return func(e *Evidence) (string, bool) {
		for _, s := range e.Arrived {
			if !strings.Contains(string(s.Body), "[broken off") || strings.Contains(string(s.Body), "DELETE") {
				return "an override arrived: " + e.brief(), false
			}
		}
		ls := e.lines()
		return e.brief(), len(ls) > 0 && !slices.ContainsFunc(ls, func(l line) bool { return !slices.Contains(codes, l.Code) })
	}
}

// arrived: so many requests arrived, and were answered.
func arrived(n int) Judge {
	return func(e *Evidence) (string, bool) {
		return fmt.Sprintf("%d arrived: %s", len(e.Arrived), e.brief()), len(e.Arrived) == n && !e.failed()
	}
}

// neverWhole: the proxy refused, and what it may have sent was broken off. With unsent not even that had the
// credential.
func neverWhole(unsent bool) Judge {
	return func(e *Evidence) (string, bool) {
		for _, s := range e.Arrived {
			if !bytes.Contains(s.Body, []byte("[broken off")) {
				return "a whole request arrived", false
			}
		}
		if unsent && e.got("HTTPBIN_BODY") {
			return "the credential left before the refusal", false
		}
		ls := e.lines()
		return e.brief(), len(ls) == 1 && ls[0].Code == "ambiguous_request"
	}
}

// unseparated: the credential arrived, in a body that no parser of forms takes apart.
func unseparated(e *Evidence) (string, bool) {
	if !e.got("HTTPBIN_BODY") || len(e.Arrived) != 1 {
		return "did not arrive: " + e.brief(), false
	}
	if bytes.ContainsAny(e.Arrived[0].Body, "&;") {
		return "the body has a separator of forms", false
	}
	return "swapped, without a separator", true
}

// intact: one request arrived with exactly this body.
func intact(body string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) != 1 || string(e.Arrived[0].Body) != body {
			return "not as it was: " + e.brief(), false
		}
		return "arrived as it was", true
	}
}

// once: the credential arrived exactly once in each request.
func once(token string) Judge {
	return func(e *Evidence) (string, bool) {
		if len(e.Arrived) == 0 {
			return "did not arrive: " + e.brief(), false
		}
		for _, s := range e.Arrived {
			n := strings.Count(s.Target, e.World.Canaries[token].Value()) + strings.Count(string(s.Body), e.World.Canaries[token].Value())
			for _, values := range s.Header {
				n += strings.Count(strings.Join(values, "\n"), e.World.Canaries[token].Value())
			}
			if n != 1 {
				return fmt.Sprintf("arrived %d times", n), false
			}
		}
		return "arrived once", true
	}
}

// basic: the credential arrived as the password of Basic.
func basic(e *Evidence) (string, bool) {
	for _, s := range e.Arrived {
		if _, ok := strings.CutPrefix(s.Header.Get("Authorization"), "Basic "); ok && e.got("HTTPBIN_TOKEN") {
			return "swapped inside Basic", true
		}
	}
	return e.brief(), false
}

// closed: a WebSocket was closed before its message arrived.
func closed(e *Evidence) (string, bool) {
	switch {
	case strings.Contains(e.Result.Out, "comment"):
		return "the message arrived", false
	case !strings.Contains(e.Result.Out, "closed"):
		return "not mounted: " + e.brief(), false
	}
	return "the connection was closed", true
}
