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

// printed are the last lines of a server's log. Broker.mu guards it.
type printed struct {
	lines []operatorapi.Line
	bytes int
}

// add appends a line, and drops the oldest lines beyond the bounds.
func (p *printed) add(text string) {
	p.lines = append(p.lines, operatorapi.Line{At: time.Now(), Text: text})
	p.bytes += len(text)
	for len(p.lines) > maxPrinted || p.bytes > maxPrintedBytes {
		p.bytes -= len(p.lines[0].Text)
		p.lines = p.lines[1:]
	}
}

// note stores a line of the server's log. It uses a separate lock, because some callers hold Broker.mu.
func (s *server) note(text string, attrs ...any) {
	for i := 0; i+1 < len(attrs); i += 2 {
		text += fmt.Sprintf(" %v=%v", attrs[i], attrs[i+1])
	}
	s.broker.printing.Lock()
	defer s.broker.printing.Unlock()
	p := s.broker.printed[s.api.Name]
	if p == nil {
		p = &printed{}
		if s.broker.printed == nil {
			s.broker.printed = map[string]*printed{}
		}
		s.broker.printed[s.api.Name] = p
	}
	p.add(strings.ToValidUTF8(text, ""))
}

// Log returns the last output and events of a server, oldest first.
func (b *Broker) Log(name string) ([]operatorapi.Line, error) {
	if b.server(name) == nil {
		return nil, operatorapi.ErrNoServer
	}
	b.printing.Lock()
	defer b.printing.Unlock()
	if p := b.printed[name]; p != nil {
		return append([]operatorapi.Line{}, p.lines...), nil
	}
	return []operatorapi.Line{}, nil
}

// Restart ends all processes of a server together with their calls, and forgets its failures. The next call starts the
// server again and asks for its tools.
func (b *Broker) Restart(name string) error {
	s := b.server(name)
	if s == nil {
		return operatorapi.ErrNoServer
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range s.instances {
		b.retire(i)
		i.kill(errRestarted)
	}
	s.breaker, s.notBefore, s.problem, s.fresh = breaker{}, time.Time{}, "", false
	s.log("the user restarted the server")
	return nil
}

// errRestarted is the cause of an instance's end if the user wanted it.
var errRestarted = errors.New("the user restarted the server")
