package attack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
)

// The relay's close frame, as the code sees it: one from the server with the code 1002, 1008 or 1009.
const (
	byeProtocol = "\u0088\u0002\u0003\u00ea"
	byePolicy   = "\u0088\u0002\u0003\u00f0"
	byeTooBig   = "\u0088\u0002\u0003\u00f1"
)

// hungUp: the server got the handshake and sent its frame; the code saw a 101 and then this close frame, and nothing
// else that the server sent.
func hungUp(bye, behind string) Judge {
	return func(e *Evidence) (string, bool) {
		ls := e.lines()
		switch {
		case len(e.Arrived) != 1 || len(ls) != 1 || ls[0].Status != 101:
			return fmt.Sprintf("no relay began: %s; %d arrived", e.brief(), len(e.Arrived)), false
		case !strings.HasSuffix(ls[0].Text, "\r\n\r\n"+bye):
			_, seen, _ := strings.Cut(ls[0].Text, "\r\n\r\n")
			return fmt.Sprintf("%q came through, with %q: %t", clip(seen, 60), behind, strings.Contains(seen, behind)), false
		}
		return fmt.Sprintf("closed with %d", int([]rune(bye)[2])<<8|int([]rune(bye)[3])), true
	}
}

// unheard is hungUp for frames of the client, of which only a close reaches the server.
func unheard(bye string) Judge {
	return func(e *Evidence) (string, bool) {
		if seen, held := hungUp(bye, "")(e); !held {
			return seen, false
		}
		frames, err := e.spoken()
		// The close frame may reach the upstream after the code.
		for end := time.Now().Add(patience); err == nil && len(frames) == 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			frames, err = e.spoken()
		}
		if err != nil || len(frames) == 0 || slices.ContainsFunc(frames, func(f spokenFrame) bool { return f.op != 8 || len(f.payload) != 2 }) {
			return fmt.Sprintf("the server heard %q, %v", frames, err), false
		}
		return hungUp(bye, "")(e)
	}
}

// heard: these words reached the server, with token also its credential, and otherwise no credential.
func heard(words, token string) Judge {
	return func(e *Evidence) (string, bool) {
		frames, err := e.spoken()
		if err != nil {
			return err.Error() + ": " + e.brief(), false
		}
		var all strings.Builder
		for _, f := range frames {
			all.WriteString(f.payload)
		}
		if token != "" {
			return fmt.Sprintf("%d bytes heard", all.Len()), strings.Contains(all.String(), e.World.Canaries[token].Value())
		}
		if where := e.World.Leak(all.String()); where != "" {
			return "SENT: " + where, false
		}
		return fmt.Sprintf("%d bytes heard", all.Len()), strings.Contains(all.String(), words)
	}
}

// spokenFrame is one frame that the upstream received.
type spokenFrame struct {
	op      byte
	payload string
}

// spoken are the frames after the trial's handshake, unmasked.
func (e *Evidence) spoken() ([]spokenFrame, error) {
	for _, w := range e.World.Upstream.Wires(upstream.HTTPBin) {
		_, rest, found := strings.Cut(string(w.Bytes), e.Trial)
		if !found {
			continue
		}
		_, data, _ := strings.Cut(rest, "\r\n\r\n")
		return parseFrames([]byte(data))
	}
	return nil, fmt.Errorf("the upstream saw no handshake")
}

// parseFrames reads masked frames.
func parseFrames(b []byte) ([]spokenFrame, error) {
	var out []spokenFrame
	for len(b) > 0 {
		if len(b) < 6 || b[1]&0x80 == 0 {
			return out, fmt.Errorf("no masked frame: %q", b)
		}
		op, n, at := b[0]&15, int(b[1]&0x7f), 2
		switch n {
		case 126:
			n, at = int(binary.BigEndian.Uint16(b[2:])), 4
		case 127:
			return out, fmt.Errorf("a frame of more than 64 KiB")
		}
		if len(b) < at+4+n {
			return out, fmt.Errorf("a frame that is cut")
		}
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = b[at+4+i] ^ b[at+i%4]
		}
		out = append(out, spokenFrame{op, string(payload)})
		b = b[at+4+n:]
	}
	return out, nil
}
