package egress

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// hopByHop lists the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// connectionOptions are the permitted values of Connection. Any other value would name a header that the next hop
// removes after policy judged the request with it.
var connectionOptions = []string{"", "close", "keep-alive", "upgrade", "te", "http2-settings"}

// framingHeaders are the headers besides hopByHop that determine the content, the end or the host of a message.
var framingHeaders = []string{"Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect"}

var (
	errConnection = errors.New("the Connection header names another header")
	errLookalike  = errors.New("some servers read a header's name as that of a header that frames the message")
)

// stripConnection removes the headers of the client's connection before policy judges the request, so that the judged
// headers are the headers that leave. It returns the protocol that the request asks to upgrade to, or "".
func stripConnection(h http.Header) (protocol string, err error) {
	upgrades := false
	for _, v := range h["Connection"] {
		for _, option := range strings.Split(v, ",") {
			option = strings.ToLower(strings.Trim(option, " \t"))
			//defence:final-headers
			if !slices.Contains(connectionOptions, option) {
				return "", errConnection
			}
			upgrades = upgrades || option == "upgrade"
		}
	}
	// CGI turns Transfer_Encoding and Transfer-Encoding into the same variable: the upstream would frame the message by a
	// header that the proxy ignored.
	for name := range h {
		if isLookalike(name) {
			return "", errLookalike
		}
	}
	// Each case asks for an upgrade. checkUpgrade refuses the placeholder names, because they are not "websocket".
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
	stripHopHeaders(h)
	return protocol, nil
}

// isLookalike reports whether a name differs from a framing header's only in characters that some servers treat as
// equal, such as servers with CGI.
func isLookalike(name string) bool {
	if strings.IndexFunc(name, isOddChar) < 0 {
		return false
	}
	folded := http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if isOddChar(c) {
			return '-'
		}
		return c
	}, name))
	return slices.Contains(hopByHop, folded) || slices.Contains(framingHeaders, folded)
}

// isOddChar reports whether a token may contain the character, although no known header does.
func isOddChar(c rune) bool {
	return c != '-' && (c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z')
}

// stripHopHeaders removes the headers of the connection, such as all that begin with Proxy-.
func stripHopHeaders(h http.Header) {
	for _, name := range hopByHop {
		delete(h, name)
	}
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
}
