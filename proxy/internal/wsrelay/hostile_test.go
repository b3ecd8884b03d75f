package wsrelay

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// TestHeads: every length has one encoding, every reserved bit and opcode is refused everywhere, and clients must mask.
// Promise: scrubbed-responses
func TestHeads(t *testing.T) {
	read := func(text string, wantMask bool) (frameHead, error) {
		return readHead(bufio.NewReader(strings.NewReader(text)), wantMask)
	}
	for text, length := range map[string]int64{
		"\x82\x00": 0, "\x82\x7d": 125, "\x82\x7e\x00\x7e": 126, "\x82\x7e\xff\xff": 1<<16 - 1,
		"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00": 1 << 16, "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff": 1<<63 - 1,
	} {
		if h, err := read(text, false); err != nil || h.length != length {
			t.Errorf("%q: %d, %v, want %d", text, h.length, err, length)
		}
	}
	for _, text := range []string{
		"\x82\x7e\x00\x00", "\x82\x7e\x00\x7d", "\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x05", "\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x7e",
		"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		if h, err := read(text, false); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: length %d, %v", text, h.length, err)
		}
	}
	for op := range byte(16) {
		known := op <= opBinary || op >= opClose && op <= opPong
		for _, flags := range []byte{0, fin, 0x40, 0x20, 0x10, fin | 0x40, fin | 0x20, fin | 0x10, fin | 0x70} {
			for _, masked := range []bool{false, true} {
				for _, wantMask := range []bool{false, true} {
					_, err := read(frame(flags, op, masked, "x"), wantMask)
					good := known && flags&0x70 == 0 && masked == wantMask && (op < opClose || flags == fin)
					if (err == nil) != good || err != nil && !errors.Is(err, ErrProtocol) {
						t.Errorf("opcode %d, flags %x, masked %t, want mask %t: %v", op, flags, masked, wantMask, err)
					}
				}
			}
		}
		if _, err := read(frame(fin, op, false, strings.Repeat("x", 126)), false); op >= opClose && !errors.Is(err, ErrProtocol) {
			t.Errorf("opcode %d with 126 bytes: %v", op, err)
		}
	}
	for cut := range 14 { // a truncated head is never a head
		text := frame(fin, opBinary, true, strings.Repeat("x", 1<<16))[:cut]
		if _, err := read(text, true); err == nil {
			t.Errorf("%d bytes of a head: %v", cut, err)
		}
	}
}

// TestOneByteFrames cuts a credential and a name into frames of one byte, with empty frames and control frames between.
// Promise: scrubbed-responses
func TestOneByteFrames(t *testing.T) {
	e := start(t, options())
	send := func(c net.Conn, masked bool, text string) {
		for i := range text {
			op := byte(opContinuation)
			if i == 0 {
				op = opText
			}
			flags := byte(0)
			if i == len(text)-1 {
				flags = fin
			}
			data := frame(flags, op, masked, text[i:i+1])
			if i > 0 {
				data = frame(0, opContinuation, masked, "") + data
			}
			if i%7 == 3 {
				data = frame(fin, opPing, masked, "p") + frame(fin, opPong, masked, "q") + data
			}
			_, _ = io.WriteString(c, data)
		}
	}
	message := func(c net.Conn) string {
		text := ""
		for {
			got := e.read(c)
			op, rest, _ := strings.Cut(got, " ")
			end, payload, ok := strings.Cut(rest, " ")
			switch {
			case !ok:
				t.Fatalf("got %q", got)
			case op == "9" || op == "10":
				if payload != "p" && payload != "q" {
					t.Errorf("got %q", got)
				}
				continue
			}
			if text += payload; end == "true" {
				return text
			}
		}
	}
	go send(e.upstream, false, "a "+canary+" b")
	if got := message(e.client); got != "a STRIPE_AUTH_TOKEN b" {
		t.Errorf("the client got %q", got)
	}
	go send(e.client, true, `{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`)
	if got := message(e.upstream); got != `{"auth":{"token":"`+canary+`"}}` {
		t.Errorf("the upstream got %q", got)
	}
}

// TestClientControl: a name in a control frame stays a name, and a value in one, in any form, ends the connection
// before it is passed on.
// Promise: leaked-values-stop-here
func TestClientControl(t *testing.T) {
	for name, op := range map[string]byte{"ping": opPing, "pong": opPong, "close": opClose} {
		code := ""
		if op == opClose {
			code = "\x03\xe8"
		}
		e := start(t, options())
		e.send(e.client, frame(fin, op, true, code+`{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`))
		if got := e.read(e.upstream); !strings.HasSuffix(got, code+`{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`) {
			t.Errorf("%s: the upstream got %q", name, got)
		}
		for form, text := range map[string]string{"raw": canary, "json": `sk_live_51Hx\/Zq\u002bcanary==`, "base64": "c2tfbGl2ZV81MUh4L1pxK2NhbmFyeT09"} {
			e := start(t, options())
			e.send(e.client, frame(fin, op, true, code+text))
			if got := e.read(e.upstream); got != "8 true \x03\xf0" {
				t.Errorf("%s, %s: the upstream got %q", name, form, got)
			}
			if err := <-e.result; !errors.Is(err, swap.ErrCarriesValue) {
				t.Errorf("%s, %s: %v", name, form, err)
			}
		}
	}
}

// TestControlWithin: a control frame within a message is judged like one between messages.
// Promise: leaked-values-stop-here
func TestControlWithin(t *testing.T) {
	for name, tc := range map[string]struct {
		control, code string
		err           error
	}{
		"a value in a ping": {frame(fin, opPing, true, canary), "\x03\xf0", swap.ErrCarriesValue},
		"close 1006":        {frame(fin, opClose, true, "\x03\xee"), "\x03\xea", ErrProtocol},
	} {
		e := start(t, options())
		e.send(e.client, frame(0, opText, true, "half")+tc.control+frame(fin, opContinuation, true, "rest"))
		e.want(e.upstream, "8 true "+tc.code, "EOF")
		if err := <-e.result; !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUpstreamControl: a control frame of the upstream is scrubbed in every form, and still is one where the name is
// longer than the value.
// Promise: scrubbed-responses
func TestUpstreamControl(t *testing.T) {
	const short = "short-value"
	name := "A_NAME_" + strings.Repeat("X", 57)
	creds := []catalog.Credential{{Name: name, Value: secret.New(short)}}
	for what, op := range map[string]byte{"ping": opPing, "pong": opPong, "close": opClose} {
		code := ""
		if op == opClose {
			code = "\x03\xe8"
		}
		o := options()
		o.Scrub = scrub.New(creds)
		e := start(t, o)
		e.send(e.upstream, frame(fin, op, false, code+short+strings.Repeat("é", 50)))
		_ = e.client.SetReadDeadline(time.Now().Add(testkit.Patience))
		h, err := readHead(e.readers[e.client], false)
		if err != nil || h.op != op || h.length > maxControl {
			t.Fatalf("%s: %+v, %v", what, h, err)
		}
		payload := make([]byte, h.length)
		if _, err := io.ReadFull(e.readers[e.client], payload); err != nil || strings.Contains(string(payload), short[:6]) || !strings.HasPrefix(string(payload), code+name) ||
			!strings.HasSuffix(string(payload), "é") {
			t.Errorf("%s: %q, %v", what, payload, err)
		}
	}
	for what, text := range map[string]string{"percent": "sk_live_51Hx%2FZq%2Bcanary%3D%3D", "hex": "736b5f6c6976655f353148782f5a712b63616e6172793d3d", "base64": "YTpza19saXZlXzUxSHgvWnErY2FuYXJ5PT0="} {
		e := start(t, options())
		e.send(e.upstream, frame(fin, opPing, false, text))
		if got := e.read(e.client); !strings.Contains(got, "STRIPE_AUTH_TOKEN") {
			t.Errorf("%s: the client got %q", what, got)
		}
	}
}

// TestCloseWithin: a close within a message ends the relay; the part of the message is not passed on as a complete one.
func TestCloseWithin(t *testing.T) {
	e := start(t, options())
	e.send(e.client, frame(0, opText, true, "half")+frame(fin, opClose, true, "\x03\xe8")+frame(fin, opContinuation, true, "rest"))
	e.want(e.upstream, "8 true \x03\xe8", "EOF")
	if err := <-e.result; err == nil {
		t.Error("it ended well")
	}
}

// TestOneClose: nothing follows a close frame, not even another close frame.
func TestOneClose(t *testing.T) {
	e := start(t, options())
	e.send(e.client, frame(fin, opClose, true, "\x03\xe8bye"))
	e.want(e.upstream, "8 true \x03\xe8bye")
	e.send(e.upstream, frame(fin|0x40, opText, false, "broken"))
	e.want(e.upstream, "EOF")
	if err := <-e.result; !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// TestLaterFrames: what RFC 6455 forbids is refused in the second frame of a message, and in a second message, as in
// the first; nothing of the bad frame is passed on.
// Promise: scrubbed-responses
func TestLaterFrames(t *testing.T) {
	for name, bad := range map[string]func(masked bool) string{
		"compressed continuation": func(m bool) string { return frame(fin|0x40, opContinuation, m, "BAD") },
		"reserved bit two":        func(m bool) string { return frame(fin|0x20, opContinuation, m, "BAD") },
		"reserved opcode":         func(m bool) string { return frame(fin, 5, m, "BAD") },
		"reserved control":        func(m bool) string { return frame(fin, 15, m, "BAD") },
		"a new message":           func(m bool) string { return frame(fin, opBinary, m, "BAD") },
		"split ping":              func(m bool) string { return frame(0, opPing, m, "BAD") },
		"compressed ping":         func(m bool) string { return frame(fin|0x40, opPing, m, "BAD") },
		"the other's masking":     func(m bool) string { return frame(fin, opContinuation, !m, "BAD") },
	} {
		for _, first := range []string{"within", "behind"} {
			for _, down := range []bool{true, false} {
				e := start(t, options())
				from, to := e.client, e.upstream
				if down {
					from, to = to, from
				}
				begin := frame(0, opText, !down, "good\n")
				if first == "behind" {
					if name == "a new message" {
						continue
					}
					begin = frame(fin, opText, !down, "good\n")
				}
				e.send(from, begin+bad(!down))
				for {
					got := e.read(to)
					if strings.Contains(got, "BAD") || !strings.HasPrefix(got, "8 ") && !strings.Contains(got, "good") {
						t.Fatalf("%s, %s a message, down %t: got %q", name, first, down, got)
					}
					if strings.HasPrefix(got, "8 ") {
						if got != "8 true \x03\xea" {
							t.Errorf("%s, %s a message, down %t: closed with %q", name, first, down, got)
						}
						break
					}
				}
				if err := <-e.result; !errors.Is(err, ErrProtocol) {
					t.Errorf("%s, %s a message, down %t: %v", name, first, down, err)
				}
			}
		}
	}
}

// TestHugeFrames: a frame that announces a huge payload is refused before the payload arrives.
// Promise: bounded-connections
func TestHugeFrames(t *testing.T) {
	for name, length := range map[string]string{"64 MiB and one": "\x7f\x00\x00\x00\x00\x04\x00\x00\x01", "all there can be": "\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"} {
		for _, down := range []bool{true, false} {
			e := start(t, options())
			from, to, size := e.client, e.upstream, []byte(length)
			if down {
				from, to = to, from
			} else {
				size[0] |= 0x80
				size = append(size, 1, 2, 3, 4)
			}
			e.send(from, "\x82"+string(size))
			e.want(to, "8 true \x03\xf1")
			if err := <-e.result; !errors.Is(err, ErrTooBig) {
				t.Errorf("%s, down %t: %v", name, down, err)
			}
		}
	}
}

// panics is a connection with a bug.
type panics struct{ rwc }

func (panics) Read([]byte) (int, error) { panic("a bug") }

// TestPanic: a bug ends its own connection, not the process.
func TestPanic(t *testing.T) {
	bad := panics{rwc{strings.NewReader(""), io.Discard}}
	good, far := pair(t)
	defer far.Close()
	if err := RelayMessages(t.Context(), bad, good, options()); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// FuzzUp feeds anything as the client's frames: it ends, its output consists of masked frames that RFC 6455 allows, and
// contains the credential only where the client wrote its name into the declared field of a text message.
func FuzzUp(f *testing.F) {
	field := `{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`
	f.Add([]byte(frame(0, opText, true, field[:20]) + frame(fin, opPing, true, "p") + frame(fin, 0, true, field[20:])))
	f.Add([]byte(frame(fin, opBinary, true, field) + frame(fin, opPong, true, field)))
	f.Add([]byte(frame(fin, opText, true, "it is "+canary)))
	f.Add([]byte(frame(fin, opClose, true, "\x03\xe8"+canary)))
	f.Add([]byte("\x81\x85\x00\x00\x00\x00hello"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out strings.Builder
		r := &relay{o: options(), client: newPeer(rwc{strings.NewReader(string(data)), io.Discard}, false), upstream: newPeer(rwc{strings.NewReader(""), &out}, true), over: t.Context()}
		r.o.MaxUp = 1 << 16
		_ = r.pumpFrames(r.client, r.upstream, r.relayUp)
		br := bufio.NewReader(strings.NewReader(out.String()))
		for {
			h, err := readHead(br, true)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("wrote %q: %v", out.String(), err)
			}
			payload := make([]byte, h.length)
			if _, err := io.ReadFull(br, payload); err != nil {
				t.Fatal(err)
			}
			applyMask(payload, h.mask, 0)
			if strings.Contains(string(payload), canary) && (h.op != opText || len(r.o.Report.Swapped()) == 0) {
				t.Fatalf("%q in a frame of opcode %d", payload, h.op)
			}
		}
	})
}
