package entrance

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	recordSize = 16 << 10 // bytes of plaintext in a TLS record
	// maxText and maxWire bound the bytes that a cork holds before it writes: of plaintext, and of records for the socket.
	// TCP sends at most 64 KiB in one packet, so seven records with their framing take two packets, as four do.
	maxText = 4 * recordSize
	maxWire = 7 * (recordSize + 22)
)

// uncorkTime is how long UncorkSoon may wait. It is short compared with any network, and long compared with the time in
// which a fast body fills a cork.
const uncorkTime = time.Millisecond

// cork buffers writes, so that they leave in one piece. The zero cork is open and buffers no bytes.
type cork struct {
	mu   sync.Mutex
	held *[]byte // nil if not corked
	pool *sync.Pool
	to   io.Writer
}

var (
	textBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxText); return &b }}
	wireBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxWire); return &b }}
)

// writeOrHold writes to w, or buffers while corked. If the buffer overflows, it writes multiples of unit bytes, if unit
// is not 0.
func (c *cork) writeOrHold(w io.Writer, p []byte, unit int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return w.Write(p)
	}
	c.to = w
	n := 0
	if most := cap(*c.held); len(*c.held)+len(p) > most {
		// Fill the last TLS record before the flush.
		if rest := len(*c.held) % max(unit, 1); rest > 0 {
			n = min(len(p), unit-rest)
			*c.held = append(*c.held, p[:n]...)
		}
		if err := c.flushHeld(); err != nil {
			return 0, err
		}
		// A piece larger than the buffer needs no copy.
		if len(p)-n > most {
			m, err := w.Write(p[n:])
			return n + m, err
		}
	}
	*c.held = append(*c.held, p[n:]...)
	return len(p), nil
}

// startHolding buffers writes from now on.
func (c *cork) startHolding(in *sync.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held, c.pool = in.Get().(*[]byte), in
	}
}

// openCork writes the buffered bytes, and writes directly from then on.
func (c *cork) openCork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flushHeld()
	c.pool.Put(c.held)
	c.held = nil
	return err
}

// flushHeld writes the buffered bytes and stays corked. The caller holds mu.
func (c *cork) flushHeld() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.to.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}

// Cork buffers writes from now on. It buffers the plaintext, so that chunk framing needs no separate TLS records. It
// buffers the records, so that they leave in one system call. Only one goroutine may cork at a time.
func (c *Conn) Cork() {
	c.text.startHolding(&textBuffers)
	c.wire.startHolding(&wireBuffers)
}

// Uncork writes the buffered bytes.
func (c *Conn) Uncork() error {
	if c.soon != nil {
		c.soon.Stop()
	}
	return c.openCorks()
}

// UncorkSoon writes the buffered bytes after uncorkTime, or when the buffer is full. It is for bodies that arrive so
// fast that more bytes follow at once. The caller must call Uncork later. The next write reports an error of the
// delayed one.
func (c *Conn) UncorkSoon() {
	if c.soon == nil {
		c.soon = time.AfterFunc(uncorkTime, func() { _ = c.openCorks() })
		return
	}
	c.soon.Reset(uncorkTime)
}

func (c *Conn) openCorks() error {
	// The text first: opening it writes records into the wire.
	return errors.Join(c.text.openCork(), c.wire.openCork())
}

// Write implements io.Writer, for TLS records or plain HTTP.
func (c *Conn) Write(p []byte) (int, error) { return c.wire.writeOrHold(c.Conn, p, 0) }

// textConn is a connection whose plaintext can be corked before TLS.
type textConn struct {
	*tls.Conn
	own *Conn
}

func (t textConn) Write(p []byte) (int, error) { return t.own.text.writeOrHold(t.Conn, p, recordSize) }
