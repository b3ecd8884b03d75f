package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// options are what Connection may say. Any other would name a header for the next hop to remove after the request was
// judged with it.
var options = []string{"", "close", "keep-alive", "upgrade", "te", "http2-settings"}

// framingHeaders are the headers besides hopByHop that determine the content, the end or the host of a message.
var framingHeaders = []string{"Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect"}

var (
	errConnection = errors.New("the Connection header names another header")
	errLookalike  = errors.New("some servers read a header's name as that of a header that frames the message")
)

// stripConnection removes the headers of the client's connection before anything is judged, so that what is judged is
// what leaves. It returns the protocol that the request asks to upgrade to, or "".
func stripConnection(h http.Header) (protocol string, err error) {
	upgrades := false
	for _, v := range h["Connection"] {
		for _, option := range strings.Split(v, ",") {
			option = strings.ToLower(strings.Trim(option, " \t"))
			//defence:final-headers
			if !slices.Contains(options, option) {
				return "", errConnection
			}
			upgrades = upgrades || option == "upgrade"
		}
	}
	for name := range h {
		if lookalike(name) {
			return "", errLookalike
		}
	}
	switch {
	case len(h["Upgrade"]) > 0:
		protocol = strings.Join(h["Upgrade"], ",")
	case upgrades:
		protocol = "unnamed"
	case len(h["Http2-Settings"]) > 0:
		protocol = "h2c"
	case len(h[":protocol"]) > 0:
		protocol = "extended CONNECT"
	}
	//defence:final-headers
	strip(h)
	return protocol, nil
}

// lookalike reports whether a name differs from a framing header's only in characters that some servers, such as those
// with CGI, treat as equal.
func lookalike(name string) bool {
	if strings.IndexFunc(name, odd) < 0 {
		return false
	}
	folded := http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if odd(c) {
			return '-'
		}
		return c
	}, name))
	return slices.Contains(hopByHop, folded) || slices.Contains(framingHeaders, folded)
}

// odd is a character that a token may have and no known header does.
func odd(c rune) bool {
	return c != '-' && (c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z')
}

// strip removes the headers of one connection.
func strip(h http.Header) {
	for _, name := range hopByHop {
		delete(h, name)
	}
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
}
