package entrance_test

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
)

// TestHTTP2Bounds: the client is told at the start how much one HTTP/2 connection may have unread, and how many
// streams; the server enforces both.
// Promise: bounded-connections
func TestHTTP2Bounds(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	raw, err := net.Dial("tcp", d.https[0])
	testkit.Must(t, err)
	defer raw.Close()
	c, err := d.over(raw, "h2")
	testkit.Must(t, err)
	testkit.Must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = io.WriteString(c, http2.ClientPreface)
	testkit.Must(t, err)
	f := http2.NewFramer(c, c)
	testkit.Must(t, f.WriteSettings())
	testkit.Must(t, f.WritePing(false, [8]byte{1}))
	stream, connection, streams, settings := uint32(65535), uint32(65535), uint32(1<<31), false
	for {
		frame, err := f.ReadFrame()
		testkit.Must(t, err)
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			settings = settings || !frame.IsAck()
			if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
				stream = v
			}
			if v, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok {
				streams = v
			}
		case *http2.WindowUpdateFrame:
			if frame.StreamID == 0 {
				connection += frame.Increment
			}
		case *http2.PingFrame:
			// All open streams together can take a quarter of the window: Deno promises the rest to streams that wait.
			if !settings || stream > 64<<10 || streams > lease.MaxExchanges || connection < 4*stream*streams {
				t.Errorf("settings came: %t; a stream may have %d bytes unread, the connection %d, and %d streams", settings, stream, connection, streams)
			}
			return
		}
	}
}
