package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// progressAfter is how long something may take before it is worth a line.
const progressAfter = 2 * time.Second

// progress shows on a terminal that something goes on: one line on stderr, rewritten, and gone at the end.
type progress struct {
	e       *Env
	what    string
	started time.Time
	quit    chan struct{}
	wg      sync.WaitGroup

	mu   sync.Mutex
	last string
}

// startProgress shows nothing on what is no terminal.
func startProgress(e *Env, what string) *progress {
	p := &progress{e: e, what: what, started: time.Now(), quit: make(chan struct{})}
	if e.Stderr.IsTerminal() {
		p.wg.Go(p.run)
	}
	return p
}

// say replaces what stands behind the time.
func (p *progress) say(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = message
}

func (p *progress) stop() {
	close(p.quit)
	p.wg.Wait()
}

func (p *progress) run() {
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
			line := fmt.Sprintf("%s (%d s) %s", p.what, int(time.Since(p.started).Seconds()), visible.Line(strings.TrimSpace(last)))
			if width, ok := p.e.Stderr.Width(); ok && len(line) >= width {
				line = strings.ToValidUTF8(line[:max(0, width-1)], "")
			}
			p.e.Stderr.Rewrite(line)
			shown = true
			wait.Reset(500 * time.Millisecond)
		}
	}
}
