package entrance

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	recordSize = 16 << 10 // bytes of plaintext in a TLS record
	// maxText and maxWire bound the bytes that a cork holds before it writes: of plaintext, and of records for the socket.
	// TCP sends at most 64 KiB in one packet, so seven records with their framing take two packets, as four do. maxText is
	// a multiple of recordSize, so that a full buffer leaves in full records.
	maxText = 4 * recordSize
	maxWire = 7 * (recordSize + 22)
)

// uncorkTime is how long UncorkSoon may wait. It is short compared with any network, and long compared with the time in
// which a fast body fills a cork.
const uncorkTime = time.Millisecond

// cork buffers writes, so that they leave in one piece. The zero cork is open and buffers no bytes.
type cork struct {
	mu   sync.Mutex
	held *bufio.Writer // nil if not corked
	pool *sync.Pool
}

var (
	textBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, maxText) }}
	wireBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, maxWire) }}
)

// writeOrHold writes to w, or buffers while corked.
func (c *cork) writeOrHold(w io.Writer, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return w.Write(p)
	}
	if c.held.Buffered() == 0 {
		c.held.Reset(w)
	}
	return c.held.Write(p)
}

// startHolding buffers writes from now on.
func (c *cork) startHolding(in *sync.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held, c.pool = in.Get().(*bufio.Writer), in
	}
}

// openCork writes the buffered bytes, and writes directly from then on.
func (c *cork) openCork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.held.Flush()
	c.held.Reset(nil) // the pool must not keep the connection
	c.pool.Put(c.held)
	c.held = nil
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
func (c *Conn) Write(p []byte) (int, error) { return c.wire.writeOrHold(c.Conn, p) }

// textConn is a connection whose plaintext can be corked before TLS.
type textConn struct {
	*tls.Conn
	own *Conn
}

func (t textConn) Write(p []byte) (int, error) { return t.own.text.writeOrHold(t.Conn, p) }
