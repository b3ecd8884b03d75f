package broker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// maxPrinted and maxPrintedBytes bound the stored log of one server.
const (
	maxPrinted      = 500 // lines
	maxPrintedBytes = 64 << 10
)

// logTail are the last lines of a server's log. Broker.mu guards it.
type logTail struct {
	lines []operatorapi.Line
	bytes int
}

// addLine appends a line, and drops the oldest lines beyond the bounds.
func (p *logTail) addLine(text string) {
	p.lines = append(p.lines, operatorapi.Line{At: time.Now(), Text: text})
	p.bytes += len(text)
	for len(p.lines) > maxPrinted || p.bytes > maxPrintedBytes {
		p.bytes -= len(p.lines[0].Text)
		p.lines = p.lines[1:]
	}
}

// recordLine stores a line of the server's log. It uses a separate lock, because some callers hold Broker.mu.
func (s *configuredServer) recordLine(text string, attrs ...any) {
	for i := 0; i+1 < len(attrs); i += 2 {
		text += fmt.Sprintf(" %v=%v", attrs[i], attrs[i+1])
	}
	s.broker.printing.Lock()
	defer s.broker.printing.Unlock()
	p := s.broker.printed[s.api.Name]
	if p == nil {
		p = &logTail{}
		if s.broker.printed == nil {
			s.broker.printed = map[string]*logTail{}
		}
		s.broker.printed[s.api.Name] = p
	}
	p.addLine(strings.ToValidUTF8(text, ""))
}

// ServerLog returns the last output and events of a server, oldest first.
func (b *Broker) ServerLog(name string) ([]operatorapi.Line, error) {
	if b.findServer(name) == nil {
		return nil, operatorapi.ErrNoServer
	}
	b.printing.Lock()
	defer b.printing.Unlock()
	lines := []operatorapi.Line{}
	if p := b.printed[name]; p != nil {
		lines = append(lines, p.lines...)
	}
	return lines, nil
}

// RestartServer ends all processes of a server together with their calls, and forgets its failures. The next call
// starts the server again and asks for its tools.
func (b *Broker) RestartServer(name string) error {
	s := b.findServer(name)
	if s == nil {
		return operatorapi.ErrNoServer
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range s.instances {
		b.retireInstance(i)
		i.kill(errRestarted)
	}
	s.breaker, s.notBefore, s.problem, s.fresh = serverBreaker{}, time.Time{}, "", false
	s.logInfo("the user restarted the server")
	return nil
}

// errRestarted is the cause of an instance's end if the user wanted it.
var errRestarted = errors.New("the user restarted the server")
