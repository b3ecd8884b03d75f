package egress_test

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestHTTP2Heads sends heads that no well-behaved client does. Each is refused, and the upstream is not reached.
// Promise: one-host-one-port, one-reading
func TestHTTP2Heads(t *testing.T) {
	base := []string{":method", "GET", ":scheme", "https", ":path", "/", ":authority", demoHost}
	with := func(more ...string) []string { return append(append([]string{}, base...), more...) }
	for name, c := range map[string]struct {
		fields []string
		status string // empty: the stream is reset
	}{
		"good":                       {base, "200"},
		"host as well":               {with("host", demoHost), "200"},
		"another host as well":       {with("host", "other.test"), "421"},
		"two hosts":                  {with("host", demoHost, "host", "other.test"), "421"},
		"another authority":          {[]string{":method", "GET", ":scheme", "https", ":path", "/", ":authority", "other.test"}, "421"},
		"authority with a user":      {[]string{":method", "GET", ":scheme", "https", ":path", "/", ":authority", "a@" + demoHost}, ""},
		"no authority, another host": {[]string{":method", "GET", ":scheme", "https", ":path", "/", "host", "other.test"}, "421"},
		"no host at all":             {[]string{":method", "GET", ":scheme", "https", ":path", "/"}, "403"},
		"absolute path":              {[]string{":method", "GET", ":scheme", "https", ":path", "https://other.test/", ":authority", demoHost}, "400"},
		"path without slash":         {[]string{":method", "GET", ":scheme", "https", ":path", "x", ":authority", demoHost}, ""},
		"connect":                    {[]string{":method", "CONNECT", ":authority", demoHost + ":443"}, "400"},
		"extended connect":           {[]string{":method", "CONNECT", ":scheme", "https", ":path", "/", ":authority", demoHost, ":protocol", "websocket"}, ""},
		"space in the query":         {[]string{":method", "GET", ":scheme", "https", ":path", "/?a HTTP/1.1", ":authority", demoHost}, "400"},
		"space in the path":          {[]string{":method", "GET", ":scheme", "https", ":path", "/a b", ":authority", demoHost}, "400"},
		"bytes in the query":         {[]string{":method", "GET", ":scheme", "https", ":path", "/?\xc2\x9b", ":authority", demoHost}, "400"},
		"another expectation":        {with("expect", "the unexpected"), "400"},
		"upgrade":                    {with("upgrade", "websocket"), "400"},
		"transfer coding":            {with("transfer-encoding", "chunked"), "400"},
		"line feed in a value":       {with("x-a", "b\nc: d"), ""},
		"upper case name":            {with("X-A", "b"), ""},
		"trace":                      {[]string{":method", "TRACE", ":scheme", "https", ":path", "/", ":authority", demoHost}, "403"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			var up seen
			r.upstreams.https(up.echo())
			r.begin()
			if got := r.h2(c.fields); got != c.status {
				t.Errorf("got %q, want %q", got, c.status)
			}
			if (up.count() > 0) != (c.status == "200") {
				t.Errorf("the upstream saw %d requests", up.count())
			}
		})
	}
}

// h2 sends one head unchanged and returns the status, or "" if the stream was reset.
func (r *rig) h2(fields []string) string {
	r.t.Helper()
	c, err := tls.Dial("tcp", r.https[0], &tls.Config{RootCAs: r.roots(), ServerName: demoHost, NextProtos: []string{"h2"}})
	check(r.t, err)
	defer c.Close()
	check(r.t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = c.Write([]byte(http2.ClientPreface))
	check(r.t, err)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	check(r.t, f.WriteSettings())
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		check(r.t, enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	check(r.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}
