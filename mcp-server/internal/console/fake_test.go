package console

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// memory is a History of as many runs as a test likes. Follow gives what Tell was told.
type memory struct {
	*history.Store // what is not below is off
	runs           []operatorapi.Run

	mu     sync.Mutex
	events []operatorapi.HistoryEvent
	more   chan struct{}
}

func newMemory(t testing.TB, runs int) *memory {
	t.Helper()
	m := &memory{more: make(chan struct{})}
	for i := range runs {
		m.runs = append(m.runs, operatorapi.Run{
			Number: int64(i + 1), ID: fmt.Sprintf("r%06d", i), State: operatorapi.OK, Title: fmt.Sprint("run ", i),
			Began: time.Now().Add(-time.Duration(runs-i) * time.Minute),
		})
	}
	slices.Reverse(m.runs)
	return m
}

func (m *memory) ListRuns(_ context.Context, f operatorapi.RunFilter, cursor string) (operatorapi.Page, error) {
	from, _ := strconv.Atoi(cursor)
	var p operatorapi.Page
	for i := from; i < len(m.runs); i++ {
		if f.State != "" && m.runs[i].State != f.State || !strings.Contains(m.runs[i].Title, f.Grep) {
			continue
		}
		if len(p.Runs) == max(f.Limit, 1) {
			p.Next = strconv.Itoa(i)
			break
		}
		p.Runs = append(p.Runs, m.runs[i])
	}
	return p, nil
}

func (m *memory) RunAfter(_ context.Context, id string, _ int64) (operatorapi.Detail, error) {
	for _, r := range m.runs {
		if r.ID == id {
			return operatorapi.Detail{Run: r, Kept: true}, nil
		}
	}
	return operatorapi.Detail{}, history.ErrUnknown
}

func (m *memory) ReadRunFile(_ context.Context, _, name string, _ func(history.File) error) (history.File, error) {
	if name != "a b.html" {
		return history.File{}, history.ErrUnknown
	}
	return history.File{RunFile: operatorapi.RunFile{Name: name, Type: "text/html"}, Data: []byte("<script>")}, nil
}

// Tell adds an event.
func (m *memory) Tell(e operatorapi.HistoryEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Cursor = strconv.Itoa(len(m.events) + 1)
	m.events = append(m.events, e)
	close(m.more)
	m.more = make(chan struct{})
}

func (m *memory) Follow(ctx context.Context, after string) ([]operatorapi.HistoryEvent, error) {
	for {
		m.mu.Lock()
		from, err := strconv.Atoi(after)
		if err != nil {
			from = len(m.events)
			after = strconv.Itoa(from)
		}
		list, more := slices.Clone(m.events[from:]), m.more
		m.mu.Unlock()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
