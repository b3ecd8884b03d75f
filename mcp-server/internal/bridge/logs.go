package bridge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/frame"
)

const (
	// logBurst and logRate are how many bytes of log a server may print at once, and a second.
	logBurst = 64 << 10
	logRate  = 8 << 10
	// lastWords is how much of the end of a server's standard error is reported when it ends.
	lastWords = 1 << 10
)

// logs passes on what a server prints, in bounded lines at a bounded rate. What is too much is counted and dropped.
type logs struct {
	write func(string)

	mu      sync.Mutex
	budget  float64
	at      time.Time
	dropped int
	tail    string
}

// add passes one line on.
func (l *logs) add(line string) {
	line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "\uFFFD")
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail += line + "\n"
	l.tail = l.tail[max(0, len(l.tail)-lastWords):]
	now := time.Now()
	if l.at.IsZero() {
		l.budget = logBurst
	} else {
		l.budget = min(logBurst, l.budget+logRate*now.Sub(l.at).Seconds())
	}
	l.at = now
	if l.budget < float64(len(line)) {
		l.dropped++
		return
	}
	l.budget -= float64(len(line))
	l.tellDropped()
	l.write(line)
}

// tellDropped says how many lines were dropped. l.mu is held.
func (l *logs) tellDropped() {
	if l.dropped > 0 {
		l.write(fmt.Sprintf("[%d lines were dropped: the server prints too much]", l.dropped))
		l.dropped = 0
	}
}

// flush tells what was dropped at the end.
func (l *logs) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellDropped()
}

// last is the end of what the server printed, for the message about its end.
func (l *logs) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(l.tail, ""))
}

// restart forgets the last words of a server that is started again.
func (l *logs) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = ""
}

// follow adds the lines of r until it ends. A line longer than a log frame becomes several.
func (l *logs) follow(r io.Reader) {
	for lines := bufio.NewReaderSize(r, frame.MaxLog); ; {
		line, err := lines.ReadSlice('\n')
		l.add(string(line))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
