package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// progressAfter is the time after which an operation's progress is shown.
const progressAfter = 2 * time.Second

// progressLine shows a running operation on a terminal: one line on stderr, rewritten, and removed at the end.
type progressLine struct {
	e       *Env
	what    string
	started time.Time
	quit    chan struct{}
	wg      sync.WaitGroup

	mu   sync.Mutex
	last string
}

// startProgress starts the display. If stderr is not a terminal, it shows nothing.
func startProgress(e *Env, what string) *progressLine {
	p := &progressLine{e: e, what: what, started: time.Now(), quit: make(chan struct{})}
	if e.Stderr.IsTerminal() {
		p.wg.Go(p.refreshUntilQuit)
	}
	return p
}

// setMessage replaces the message after the elapsed time.
func (p *progressLine) setMessage(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = message
}

// printLine prints a permanent line, on a terminal or not.
func (p *progressLine) printLine(line string) {
	p.e.Stderr.Rewrite("")
	fmt.Fprintln(p.e.Stderr, line)
}

func (p *progressLine) stop() {
	close(p.quit)
	p.wg.Wait()
}

func (p *progressLine) refreshUntilQuit() {
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	shown := false
	for {
		select {
		case <-p.quit:
			if shown {
				p.e.Stderr.Rewrite("")
			}
			return
		case <-wait.C:
			p.mu.Lock()
			last := p.last
			p.mu.Unlock()
			if i := strings.LastIndexByte(strings.TrimRight(last, "\n"), '\n'); i >= 0 {
				last = last[i+1:]
			}
			seconds := int(time.Since(p.started).Seconds())
			line := fmt.Sprintf("%s (%d s) %s", p.what, seconds, safetext.OneLine(strings.TrimSpace(last)))
			if width, ok := p.e.Stderr.Width(); ok && len(line) >= width {
				// The cut may be inside a character.
				line = strings.ToValidUTF8(line[:max(0, width-1)], "")
			}
			p.e.Stderr.Rewrite(line)
			shown = true
			wait.Reset(500 * time.Millisecond)
		}
	}
}
