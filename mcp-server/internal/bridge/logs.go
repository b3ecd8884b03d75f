package bridge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

const (
	// logBurst and logRate bound a server's log output: bytes at once, and bytes per second.
	logBurst = 64 << 10
	logRate  = 8 << 10
	// lastWords bounds the end of a server's standard error that is reported when the server ends, in bytes.
	lastWords = 1 << 10
)

// logRelay passes on a server's output in bounded lines at a bounded rate. Further lines are counted and dropped.
type logRelay struct {
	write  func(string)
	output *rate.Limiter // of bytes

	mu      sync.Mutex
	dropped int
	tail    string
}

func (l *logRelay) addLine(line string) {
	line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "\uFFFD")
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The tail keeps dropped lines too: the last ones usually explain the server's end.
	l.tail += line + "\n"
	l.tail = l.tail[max(0, len(l.tail)-lastWords):]
	if !l.output.AllowN(time.Now(), len(line)) {
		l.dropped++
		return
	}
	l.tellDropped()
	l.write(line)
}

// tellDropped reports the number of dropped lines. The caller holds l.mu.
func (l *logRelay) tellDropped() {
	if l.dropped > 0 {
		l.write(fmt.Sprintf("[%d lines were dropped: the server prints too much]", l.dropped))
		l.dropped = 0
	}
}

// reportDropped reports the lines that were dropped at the end.
func (l *logRelay) reportDropped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellDropped()
}

// lastOutput returns the end of the server's output, for the message about the server's end.
func (l *logRelay) lastOutput() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(l.tail, ""))
}

// dropLast drops the last output of a server that is started again.
func (l *logRelay) dropLast() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = ""
}

// followOutput adds the lines of r until r ends. A line longer than a log frame becomes several.
func (l *logRelay) followOutput(r io.Reader) {
	for lines := bufio.NewReaderSize(r, bridgewire.MaxLog); ; {
		line, err := lines.ReadSlice('\n')
		l.addLine(string(line))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
