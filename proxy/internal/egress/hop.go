package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// options are what Connection may say. Any other would name a header to take off, behind the back of whoever judged it.
var options = []string{"", "close", "keep-alive", "upgrade", "te", "http2-settings"}

// framing are the headers besides hopByHop that say what a message is, where it ends and whom it is for.
var framing = []string{"Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect"}

var (
	errConnection = errors.New("the Connection header names another one")
	errTwin       = errors.New("a header that some servers take for one that frames the message")
)

// bare takes the headers of the client's connection off a request, before anything is judged: what is left is what
// leaves. It gives the protocol that the request asks to change to, or nothing.
func bare(h http.Header) (protocol string, err error) {
	upgrades := false
	for _, v := range h["Connection"] {
		for _, option := range strings.Split(v, ",") {
			option = strings.ToLower(strings.Trim(option, " \t"))
			if !slices.Contains(options, option) && !disarm.Off("final-headers") {
				return "", errConnection
			}
			upgrades = upgrades || option == "upgrade"
		}
	}
	for name := range h {
		if twin(name) {
			return "", errTwin
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
	if !disarm.Off("final-headers") {
		strip(h)
	}
	return protocol, nil
}

// named takes off what Connection names, as a proxy should that judges nothing.
func named(h http.Header) {
	for _, v := range h["Connection"] {
		for _, name := range strings.Split(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	strip(h)
}

// twin reports whether a name is not that of a header which frames messages, and becomes it where a server, as CGI
// does, takes one character for another.
func twin(name string) bool {
	if strings.IndexFunc(name, odd) < 0 {
		return false
	}
	folded := http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if odd(c) {
			return '-'
		}
		return c
	}, name))
	return slices.Contains(hopByHop, folded) || slices.Contains(framing, folded)
}

// odd is a character that a token may have and no known header does.
func odd(c rune) bool {
	return c != '-' && (c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z')
}

// strip takes off the headers of one connection.
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
