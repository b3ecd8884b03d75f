package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
)

// Join carries newline-delimited JSON between a client and the supervisor's mcp.sock, until the server closes, or stdin has
// ended and what was asked is answered. (The server takes the end of its input for the end of the session.)
func Join(ctx context.Context, d statedir.Dir, stdin io.Reader, stdout io.Writer) error {
	conn, err := Dial(ctx, d)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := &waiting{ids: map[string]int{}}
	go func() {
		_ = w.carry(conn, stdin, w.asked)
		w.finish(func() {
			if c, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite()
			}
		})
	}()
	err = w.carry(stdout, conn, w.answered)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// waiting counts the requests that have no answer yet.
type waiting struct {
	mu   sync.Mutex
	ids  map[string]int
	done func() // set when there will be no more requests
}

// carry copies lines, and notes each before it goes on.
func (w *waiting) carry(to io.Writer, from io.Reader, note func(id, method string)) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var m message
			_ = json.Unmarshal(line, &m) // what is no message is the reader's to refuse
			if _, err := to.Write(line); err != nil {
				return fmt.Errorf("passing a message on: %w", err)
			}
			note(string(m.ID), m.Method)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
	}
}

func (w *waiting) asked(id, method string) {
	if id == "" || method == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[id]++
	w.settle(id)
}

func (w *waiting) answered(id, method string) {
	if id == "" || method != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[id]-- // below 0 for an instant when the answer is noted before the question
	w.settle(id)
	w.check()
}

func (w *waiting) settle(id string) {
	if w.ids[id] == 0 {
		delete(w.ids, id)
	}
}

// finish calls f once everything asked is answered.
func (w *waiting) finish(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = f
	w.check()
}

func (w *waiting) check() {
	if w.done != nil && len(w.ids) == 0 {
		w.done()
		w.done = nil
	}
}
