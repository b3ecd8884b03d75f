// Package generation numbers leases. Numbers only grow, across restarts and crashes of sandboxd too, so that a message
// for an older lease never acts on a newer one.
package generation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// block is the number of generations that one write to disk reserves. A restart skips the unused rest of the block.
const block = 1000

// Counter gives out generations. It is safe for concurrent use.
type Counter struct {
	path string

	mu          sync.Mutex
	last, limit uint64 // given out; reserved on disk
}

// OpenCounter reads the counter's file, or creates it. All later generations are greater than least. An unreadable file
// is an error: starting again from 1 would let an old message act on a new lease.
func OpenCounter(path string, least uint64) (*Counter, error) {
	c := &Counter{path: path}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the last generation: %w", err)
	}
	if err == nil {
		if c.last, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err != nil {
			return nil, fmt.Errorf("%s does not hold a generation: %q", path, data)
		}
	}
	// The file holds a reserved limit, so all numbers of earlier processes are below it.
	c.last = max(c.last, least)
	c.limit = c.last
	return c, c.reserveNumbers()
}

// Next returns a number greater than every earlier one.
func (c *Counter) Next() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == c.limit {
		if err := c.reserveNumbers(); err != nil {
			return 0, err
		}
	}
	c.last++
	return c.last, nil
}

// Last returns the newest generation, or the limit that an earlier start reserved if this one has given out none.
func (c *Counter) Last() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// reserveNumbers writes the next limit. It must be on disk before any number up to it is given out.
func (c *Counter) reserveNumbers() error {
	next := c.limit + block
	if err := atomicfile.Write(c.path, []byte(strconv.FormatUint(next, 10)+"\n"), 0o600); err != nil {
		return fmt.Errorf("reserving generations: %w", err)
	}
	c.limit = next
	return nil
}
