package upstream

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
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

// socket is a WebSocket server. mode: echo (sends every message back, after one with the credential), deflate (the same
// with permessage-deflate), frames (the credential in frames of cut bytes), pinged (in frames of one byte, with pings
// and empty frames between them), drip (a frame byte by byte), binary, interleaved (a ping between two halves), close
// (the credential as the reason), ping and pong (as the payload), listen (sends nothing), or a mode of hostile.
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
	case "pong":
		_, _ = c.Write(frame(10, true, []byte(secret[:min(len(secret), 120)])))
	case "pinged":
		first := func(i int) byte {
			if i == 0 {
				return 1
			}
			return 0
		}
		for i := range len(secret) {
			_, _ = c.Write(append(frame(9, true, []byte("p")), frame(first(i), i == len(secret)-1, []byte(secret[i:i+1]))...))
			if i < len(secret)-1 {
				_, _ = c.Write(frame(0, false, nil))
			}
		}
	case "listen":
	default:
		_, _ = c.Write(hostile(mode, secret))
	}
	if mode != "listen" {
		_, _ = c.Write(frame(1, true, []byte("done")))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(rw, 1<<20))
}

// hostile are frames that RFC 6455 forbids, with the credential if there is room for it.
func hostile(mode, secret string) []byte {
	short := []byte(secret[:min(len(secret), 120)])
	flagged := func(bits byte, f []byte) []byte { f[0] |= bits; return f }
	switch mode {
	case "rsv1":
		return flagged(0x40, frame(1, true, []byte(secret)))
	case "rsv2":
		return flagged(0x20, frame(1, true, []byte(secret)))
	case "rsv3":
		return flagged(0x10, frame(2, true, []byte(secret)))
	case "rsv1-later":
		return append(frame(1, false, nil), flagged(0x40, frame(0, true, []byte(secret)))...)
	case "rsv1-ping":
		return flagged(0x40, frame(9, true, short))
	case "context":
		var b bytes.Buffer
		z, _ := flate.NewWriter(&b, flate.BestCompression)
		var out []byte
		for range 2 { // the second one refers to the first
			_, _ = io.WriteString(z, secret)
			_ = z.Flush()
			out = append(out, flagged(0x40, frame(1, true, bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})))...)
			b.Reset()
		}
		return out
	case "masked":
		return append([]byte{0x81, 0x80 | byte(len(short)), 0, 0, 0, 0}, short...)
	case "opcode":
		return frame(3, true, []byte(secret))
	case "control":
		return frame(11, true, short)
	case "continuation":
		return frame(0, true, []byte(secret))
	case "within":
		return append(frame(1, false, nil), frame(1, true, []byte(secret))...)
	case "split-ping":
		return append(frame(9, false, short[:4]), frame(0, true, short[4:])...)
	case "long-ping":
		return frame(9, true, []byte(secret+strings.Repeat("x", 126)))
	case "wasteful":
		return append([]byte{0x81, 126, 0, byte(len(short))}, short...)
	case "huge":
		return append([]byte{0x81, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, secret...)
	case "negative":
		return append([]byte{0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, secret...)
	case "bad-close":
		return frame(8, true, append([]byte{0x03, 0xee}, short...))
	}
	return nil
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

// shake does the opening handshake without a library.
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
