package entrance

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"
)

// maxHeld is how many bytes a cork holds before it writes anyway: four pieces of a TLS record each with their framing.
const maxHeld = 66 << 10

// uncorkTime is how long UncorkSoon may wait: little next to any network, and long next to the time in which a fast
// body fills a cork.
const uncorkTime = time.Millisecond

// cork holds what is written, so that it leaves in one piece. The zero cork holds nothing.
type cork struct {
	mu   sync.Mutex
	held *[]byte // nil: not corked
	to   io.Writer
}

var corkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxHeld); return &b }}

// put writes to w, or holds it.
func (c *cork) put(w io.Writer, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return w.Write(p)
	}
	c.to = w
	if len(*c.held)+len(p) > maxHeld {
		if err := c.release(); err != nil {
			return 0, err
		}
		if len(p) > maxHeld {
			return w.Write(p)
		}
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// hold holds what is written from now on.
func (c *cork) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = corkBuffers.Get().(*[]byte)
	}
}

// letGo writes what was held.
func (c *cork) letGo() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.release()
	corkBuffers.Put(c.held)
	c.held = nil
	return err
}

// release writes what is held and keeps holding. The caller holds mu.
func (c *cork) release() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.to.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}

// Cork holds what is written from now on: the text before it is encrypted, so that chunk framing makes no TLS records
// of its own, and the records, so that they leave in one system call. Only one goroutine may cork at a time.
func (c *Conn) Cork() {
	c.text.hold()
	c.wire.hold()
}

// Uncork writes what was held.
func (c *Conn) Uncork() error {
	if c.soon != nil {
		c.soon.Stop()
	}
	return c.uncork()
}

// UncorkSoon writes what was held before long, or when it is enough: for bodies that come so fast that more is at hand.
// Uncork must follow. An error is that of the next write.
func (c *Conn) UncorkSoon() {
	if c.soon == nil {
		c.soon = time.AfterFunc(uncorkTime, func() { _ = c.uncork() })
		return
	}
	c.soon.Reset(uncorkTime)
}

func (c *Conn) uncork() error {
	return errors.Join(c.text.letGo(), c.wire.letGo())
}

// Write implements io.Writer, for TLS records or for plain HTTP.
func (c *Conn) Write(p []byte) (int, error) { return c.wire.put(c.Conn, p) }

// texts is a connection whose text, before TLS, can be corked.
type texts struct {
	*tls.Conn
	own *Conn
}

// Write implements io.Writer.
func (t texts) Write(p []byte) (int, error) { return t.own.text.put(t.Conn, p) }
