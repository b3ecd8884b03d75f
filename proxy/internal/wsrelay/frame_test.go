package wsrelay

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// frame encodes a frame by hand; flags are FIN and the reserved bits.
func frame(flags, op byte, masked bool, payload string) string {
	b := []byte{flags | op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	if !masked {
		return string(b) + payload
	}
	b[1] |= 0x80
	mask := [4]byte{1, 2, 3, 4}
	data := []byte(payload)
	applyMask(data, mask, 0)
	return string(b) + string(mask[:]) + string(data)
}

const fin = 0x80

// ends are the far ends of a relay.
type ends struct {
	t                *testing.T
	client, upstream net.Conn
	readers          map[net.Conn]*bufio.Reader
	result           chan error
	cancel           context.CancelFunc
}

// listen returns two ends of a TCP connection.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func start(t *testing.T, o Options) *ends {
	client, a := pair(t)
	b, upstream := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	e := &ends{t: t, client: client, upstream: upstream, result: make(chan error, 1), cancel: cancel}
	e.readers = map[net.Conn]*bufio.Reader{client: bufio.NewReader(client), upstream: bufio.NewReader(upstream)}
	go func() { e.result <- RelayMessages(ctx, a, b, o) }()
	return e
}

// read is the next frame at one end: "op fin payload".
func (e *ends) read(c net.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(testkit.Patience))
	h, err := readHead(e.readers[c], c == e.upstream)
	if err != nil {
		return err.Error()
	}
	payload := make([]byte, h.length)
	if _, err := io.ReadFull(e.readers[c], payload); err != nil {
		return err.Error()
	}
	if h.masked {
		applyMask(payload, h.mask, 0)
	}
	return fmt.Sprintf("%d %t %s", h.op, h.fin, payload)
}

func (e *ends) send(c net.Conn, data string) {
	e.t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		e.t.Error(err)
	}
}

func (e *ends) want(c net.Conn, frames ...string) {
	e.t.Helper()
	for _, f := range frames {
		if got := e.read(c); got != f {
			e.t.Errorf("got frame %.100q, want %.100q", got, f)
		}
	}
}

// Promise: scrubbed-responses
func TestFrames(t *testing.T) {
	e := start(t, options())
	down := func(flags, op byte, payload string) { e.send(e.upstream, frame(flags, op, false, payload)) }
	up := func(flags, op byte, payload string) { e.send(e.client, frame(flags, op, true, payload)) }

	// A credential over frames, with a ping in between that arrives before the rest.
	down(0, opText, "a "+canary[:5])
	down(fin, opPing, "ping")
	e.want(e.client, "9 true ping")
	down(0, opContinuation, canary[5:6])
	down(0, opContinuation, "")
	down(fin, opContinuation, canary[6:])
	e.want(e.client, "1 true a STRIPE_AUTH_TOKEN")
	// A finished line leaves before the message ends.
	down(0, opText, "line\nmore")
	e.want(e.client, "1 false line\n")
	down(fin, opContinuation, "")
	e.want(e.client, "0 true more")
	down(fin, opBinary, "\x00"+canary)
	e.want(e.client, "2 true \x00STRIPE_AUTH_TOKEN")
	down(fin, opText, "")
	e.want(e.client, "1 true ")
	down(fin, opPing, canary)
	e.want(e.client, "9 true STRIPE_AUTH_TOKEN")

	up(0, opText, `{"auth":{"token":"STRIPE_`)
	up(fin, opPong, "Jane Doe")
	up(fin, opContinuation, `AUTH_TOKEN"}}`)
	e.want(e.upstream, "10 true REDACTED", `1 true {"auth":{"token":"`+canary+`"}}`)
	up(fin, opBinary, `{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`)
	e.want(e.upstream, `2 true {"auth":{"token":"STRIPE_AUTH_TOKEN"}}`)
	big := strings.Repeat("x", 70000)
	up(fin, opBinary, big)
	e.want(e.upstream, "2 true "+big)

	up(fin, opClose, "\x0f\xa0bye Jane Doe")
	e.want(e.upstream, "8 true \x0f\xa0bye REDACTED")
	down(fin, opClose, "\x0f\xa1"+canary)
	e.want(e.client, "8 true \x0f\xa1STRIPE_AUTH_TOKEN", "EOF")
	if err := <-e.result; err != nil {
		t.Errorf("got %v", err)
	}
}

// Promise: scrubbed-responses
func TestBadFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		down bool
		data string
		code uint16
		err  error
	}{
		"compressed":            {true, frame(fin|0x40, opText, false, "x"), closeProtocol, ErrProtocol},
		"compressed by client":  {false, frame(fin|0x40, opText, true, "x"), closeProtocol, ErrProtocol},
		"reserved bit":          {true, frame(fin|0x10, opText, false, "x"), closeProtocol, ErrProtocol},
		"reserved opcode":       {true, frame(fin, 3, false, "x"), closeProtocol, ErrProtocol},
		"reserved control":      {true, frame(fin, 11, false, "x"), closeProtocol, ErrProtocol},
		"masked by server":      {true, frame(fin, opText, true, "x"), closeProtocol, ErrProtocol},
		"unmasked by client":    {false, frame(fin, opText, false, "x"), closeProtocol, ErrProtocol},
		"continuation first":    {true, frame(fin, opContinuation, false, "x"), closeProtocol, ErrProtocol},
		"text within a message": {true, frame(0, opText, false, "x\n") + frame(fin, opText, false, "x"), closeProtocol, ErrProtocol},
		"split control":         {true, frame(0, opPing, false, "x"), closeProtocol, ErrProtocol},
		"long control":          {true, frame(fin, opPing, false, strings.Repeat("x", 126)), closeProtocol, ErrProtocol},
		"short close":           {true, frame(fin, opClose, false, "x"), closeProtocol, ErrProtocol},
		"close 1006":            {true, frame(fin, opClose, false, "\x03\xee"), closeProtocol, ErrProtocol},
		"wasteful length":       {true, "\x81\x7e\x00\x05hello", closeProtocol, ErrProtocol},
		"negative length":       {true, "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", closeProtocol, ErrProtocol},
		"too big":               {true, frame(fin, opText, false, strings.Repeat("x", 3001)), closeTooBig, ErrTooBig},
		"too big in pieces":     {true, strings.Repeat(frame(0, opText, false, strings.Repeat("x", 1500)), 1) + frame(0, 0, false, strings.Repeat("x", 1501)), closeTooBig, ErrTooBig},
		"too big, client":       {false, frame(0, opText, true, strings.Repeat("x", 1500)) + frame(fin, 0, true, strings.Repeat("x", 501)), closeTooBig, ErrTooBig},
		"a value in a ping":     {false, frame(fin, opPing, true, canary), closePolicy, nil},
	} {
		o := options()
		o.MaxUp, o.MaxDown = 2000, 3000
		e := start(t, o)
		from, to := e.client, e.upstream
		if tc.down {
			from, to = to, from
		}
		e.send(from, tc.data)
		last := ""
		for {
			got := e.read(to)
			if strings.HasPrefix(got, "8 ") {
				last = got
				break
			}
			if !strings.HasPrefix(got, "1 false") && !strings.HasPrefix(got, "0 false") {
				t.Fatalf("%s: got %.80q", name, got)
			}
		}
		if want := "8 true " + string(binary.BigEndian.AppendUint16(nil, tc.code)); last != want {
			t.Errorf("%s: closed with %q, want %q", name, last, want)
		}
		if err := <-e.result; err == nil || tc.err != nil && !errors.Is(err, tc.err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEnds(t *testing.T) {
	e := start(t, options())
	e.cancel()
	e.want(e.client, "8 true \x03\xe9", "EOF")
	e.want(e.upstream, "8 true \x03\xe9", "EOF")
	if err := <-e.result; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	e = start(t, options())
	e.send(e.upstream, frame(0, opText, false, "half of "+canary[:20]))
	_ = e.upstream.Close()
	e.want(e.client, "8 true \x03\xe9", "EOF")
	if err := <-e.result; err == nil {
		t.Error("an abort ended well")
	}
}

// deaf is an upstream that has sent all it has to say, and closed the connection.
type deaf struct{ io.Reader }

func (deaf) Write([]byte) (int, error) { return 0, syscall.EPIPE }
func (deaf) Close() error              { return nil }

// TestLastWords: what an upstream sent before it closed the connection arrives, also if the client still sends.
func TestLastWords(t *testing.T) {
	const messages = 100
	said := strings.Repeat(frame(fin, opText, false, "x"), messages)
	for last, want := range map[string]string{
		frame(fin, opClose, false, "\x03\xe8"): "8 true \x03\xe8", "": "8 true \x03\xe9",
	} {
		client, a := net.Pipe()
		e := &ends{t: t, client: client, readers: map[net.Conn]*bufio.Reader{client: bufio.NewReader(client)}}
		result := make(chan error, 1)
		go func() { result <- RelayMessages(t.Context(), a, deaf{strings.NewReader(said + last)}, Options{}) }()
		e.send(client, frame(fin, opText, true, "go on"))
		for range messages {
			e.want(client, "1 true x")
		}
		e.want(client, want, "EOF")
		if err := <-result; err == nil {
			t.Error("an abort ended well")
		}
	}
}

// FuzzDown feeds anything as the upstream's frames: it ends, and no credential comes through.
func FuzzDown(f *testing.F) {
	f.Add([]byte(frame(0, opText, false, canary[:9]) + frame(fin, opPing, false, "p") + frame(fin, 0, false, canary[9:])))
	f.Add([]byte(frame(fin, opClose, false, "\x03\xe8"+canary)))
	f.Add([]byte("\x81\x7e\x00\x05hello"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out strings.Builder
		r := &relay{o: options(), client: newPeer(rwc{strings.NewReader(""), io.Discard}, false), upstream: newPeer(rwc{strings.NewReader(string(data)), io.Discard}, true)}
		r.o.MaxDown = 1 << 16
		r.client.rw = rwc{strings.NewReader(""), &out}
		_ = r.pumpFrames(r.upstream, r.client, r.relayDown)
		said, br := "", bufio.NewReader(strings.NewReader(out.String()))
		for {
			h, err := readHead(br, false)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("wrote %q: %v", out.String(), err)
				}
				break
			}
			payload := make([]byte, h.length)
			if _, err := io.ReadFull(br, payload); err != nil {
				t.Fatal(err)
			}
			if h.isControl() && strings.Contains(string(payload), canary) {
				t.Fatalf("%q came through", payload)
			}
			if !h.isControl() {
				said += string(payload)
			}
			if h.fin && !h.isControl() {
				said += "\n" // between messages
			}
		}
		if strings.Contains(said, canary) {
			t.Fatalf("%q came through", said)
		}
	})
}

type rwc struct {
	io.Reader
	io.Writer
}

func (rwc) Close() error { return nil }
