package entrance

import "sync"

// maxHeld is how many bytes a corked connection holds before it writes anyway.
const maxHeld = 96 << 10

// cork holds what is written to a connection, so that the TLS records and the chunk framing of one piece of a body
// leave in one system call. The zero cork holds nothing.
type cork struct {
	mu   sync.Mutex
	held *[]byte // nil: not corked
}

var corkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxHeld); return &b }}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	held := c.cork.held
	if held == nil {
		return c.Conn.Write(p)
	}
	if len(*held)+len(p) > maxHeld {
		if err := c.release(); err != nil {
			return 0, err
		}
		if len(p) > maxHeld {
			return c.Conn.Write(p)
		}
	}
	*held = append(*held, p...)
	return len(p), nil
}

// Cork holds what is written from now on. Only one goroutine may cork at a time.
func (c *Conn) Cork() {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.held == nil {
		c.cork.held = corkBuffers.Get().(*[]byte)
	}
}

// Uncork writes what was held.
func (c *Conn) Uncork() error {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	if c.cork.held == nil {
		return nil
	}
	err := c.release()
	corkBuffers.Put(c.cork.held)
	c.cork.held = nil
	return err
}

// release writes what is held and keeps holding. The caller holds mu.
func (c *Conn) release() error {
	if len(*c.cork.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(*c.cork.held)
	*c.cork.held = (*c.cork.held)[:0]
	return err
}
