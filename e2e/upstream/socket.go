package upstream

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// reset closes a connection so that the peer gets a reset instead of an end.
func reset(c net.Conn) {
	for {
		switch t := c.(type) {
		case *recordedConn:
			c = t.Conn
		case *tls.Conn:
			c = t.NetConn()
		case *net.TCPConn:
			_ = t.SetLinger(0)
			_ = t.Close()
			return
		default:
			_ = c.Close()
			return
		}
	}
}

// socket is a WebSocket server. mode: echo (sends every message back, after one with the credential), deflate (the
// same with permessage-deflate), frames (the credential in frames of cut bytes), split (a header byte apart),
// binary, close (the credential as the reason), ping (as a ping's payload), bad (an invalid frame).
func socket(w http.ResponseWriter, r *http.Request) {
	mode := r.URL.Query().Get("mode")
	if mode == "" || mode == "echo" || mode == "deflate" {
		honest(w, r, mode == "deflate")
		return
	}
	secret := formed(r)
	c, rw, err := shake(w, r)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	cut := max(number(r.URL.Query(), "cut", 1), 1)
	switch mode {
	case "frames":
		for i := 0; i < len(secret); i += cut {
			end := min(i+cut, len(secret))
			op := byte(0)
			if i == 0 {
				op = 1
			}
			_, _ = c.Write(frame(op, end == len(secret), []byte(secret[i:end])))
		}
	case "drip":
		for _, b := range frame(1, true, []byte(secret)) {
			_, _ = c.Write([]byte{b})
			time.Sleep(time.Millisecond)
		}
	case "binary":
		_, _ = c.Write(frame(2, true, []byte(secret)))
	case "interleaved":
		half := len(secret) / 2
		_, _ = c.Write(frame(1, false, []byte(secret[:half])))
		_, _ = c.Write(frame(9, true, []byte("ping")))
		_, _ = c.Write(frame(0, true, []byte(secret[half:])))
	case "close":
		_, _ = c.Write(frame(8, true, append([]byte{0x03, 0xe8}, secret[:min(len(secret), 120)]...)))
	case "ping":
		_, _ = c.Write(frame(9, true, []byte(secret[:min(len(secret), 120)])))
	case "reserved":
		f := frame(1, true, []byte(secret))
		f[0] |= 0x40
		_, _ = c.Write(f)
	case "masked":
		_, _ = c.Write([]byte{0x81, 0x80 | byte(min(len(secret), 120)), 0, 0, 0, 0})
		_, _ = io.WriteString(c, secret[:min(len(secret), 120)])
	case "huge":
		_, _ = c.Write([]byte{0x81, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
	_, _ = c.Write(frame(1, true, []byte("done")))
	_, _ = io.Copy(io.Discard, io.LimitReader(rw, 1<<20))
}

// honest echoes messages through a real WebSocket implementation.
func honest(w http.ResponseWriter, r *http.Request, deflate bool) {
	opts := &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled}
	if deflate {
		opts.CompressionMode, opts.CompressionThreshold = websocket.CompressionContextTakeover, 1
	}
	secret := formed(r)
	c, err := websocket.Accept(w, r, opts)
	if err != nil {
		return
	}
	defer c.CloseNow()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if c.Write(ctx, websocket.MessageText, []byte("hello "+secret)) != nil {
		return
	}
	for {
		typ, msg, err := c.Read(ctx)
		if err != nil || c.Write(ctx, typ, msg) != nil {
			return
		}
	}
}

// shake does the opening handshake by hand.
func shake(w http.ResponseWriter, r *http.Request) (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see above
	_, err = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	return c, rw, err
}

// frame is one unmasked frame.
func frame(op byte, fin bool, payload []byte) []byte {
	b := []byte{op}
	if fin {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}
