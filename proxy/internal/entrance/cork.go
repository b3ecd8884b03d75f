package entrance

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"
)

// maxHeld is how many bytes a cork holds before it writes anyway: four TLS records with their framing.
const maxHeld = 66 << 10

// uncorkTime is how long UncorkSoon may wait: short compared with any network, and long compared with the time in which
// a fast body fills a cork.
const uncorkTime = time.Millisecond

// cork buffers what is written, so that it leaves in one piece. The zero cork is open: it holds nothing.
type cork struct {
	mu   sync.Mutex
	held *[]byte // nil: not corked
	to   io.Writer
}

var corkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxHeld); return &b }}

// put writes to w, or buffers it while corked.
func (c *cork) put(w io.Writer, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return w.Write(p)
	}
	c.to = w
	if len(*c.held)+len(p) > maxHeld {
		if err := c.flush(); err != nil {
			return 0, err
		}
		if len(p) > maxHeld {
			return w.Write(p)
		}
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// hold buffers what is written from now on.
func (c *cork) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = corkBuffers.Get().(*[]byte)
	}
}

// open writes what is held, and from then on writes directly.
func (c *cork) open() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flush()
	corkBuffers.Put(c.held)
	c.held = nil
	return err
}

// flush writes what is held and stays corked. The caller holds mu.
func (c *cork) flush() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.to.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}

// Cork buffers what is written from now on: the plaintext, so that chunk framing takes no TLS records of its own, and
// the records, so that they leave in one system call. Only one goroutine may cork at a time.
func (c *Conn) Cork() {
	c.text.hold()
	c.wire.hold()
}

// Uncork writes what was buffered.
func (c *Conn) Uncork() error {
	if c.soon != nil {
		c.soon.Stop()
	}
	return c.uncork()
}

// UncorkSoon writes what was buffered after a short delay, or when the buffer is full: for bodies that arrive so fast
// that more follows immediately. Uncork must follow. The next write reports an error.
func (c *Conn) UncorkSoon() {
	if c.soon == nil {
		c.soon = time.AfterFunc(uncorkTime, func() { _ = c.uncork() })
		return
	}
	c.soon.Reset(uncorkTime)
}

func (c *Conn) uncork() error {
	return errors.Join(c.text.open(), c.wire.open())
}

// Write implements io.Writer, for TLS records or for plain HTTP.
func (c *Conn) Write(p []byte) (int, error) { return c.wire.put(c.Conn, p) }

// texts is a connection whose plaintext can be corked before TLS.
type texts struct {
	*tls.Conn
	own *Conn
}

func (t texts) Write(p []byte) (int, error) { return t.own.text.put(t.Conn, p) }
