package guard

import (
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/tcpsocket"
)

// Listener accepts TCP connections only from certain users of this machine.
type Listener struct {
	net.Listener
	// UIDs are the users whose connections are accepted, as tcpsocket.Socket has them.
	UIDs []int
	Log  *slog.Logger

	logged  time.Time // the last logged refusal; only for Accept's goroutine
	refused int       // refusals since then
}

// logEvery bounds the rate of logged refusals, because another user could cause any number.
const logEvery = time.Second

// Accept waits for a connection from an accepted user, and closes others unread. It also closes a connection whose user
// cannot be found, because the peer has disconnected or is not on this machine.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := tcpsocket.FindPeer(c)
		//defence:mcp-owner permits
		if err == nil && slices.Contains(l.UIDs, peer.UID) {
			return c, nil
		}
		_ = c.Close()
		l.logRefusal(peer.UID, err)
	}
}

// logRefusal logs a refusal, or counts it if one was logged recently.
func (l *Listener) logRefusal(uid int, err error) {
	if l.refused++; time.Since(l.logged) < logEvery {
		return
	}
	attrs := []any{logline.Tag("mcp"), slog.Int("uid", uid), slog.Int("count", l.refused)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	l.Log.Warn("refused a connection of another user; MCP_AUTH_TOKEN would allow it with a token", attrs...)
	l.logged, l.refused = time.Now(), 0
}
