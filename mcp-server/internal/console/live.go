package console

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	// tick is the least time between two lines of a stream.
	tick = 250 * time.Millisecond
	// slowTicks is the number of ticks between two expensive checks.
	slowTicks = 4
	// keepTime is the time between empty lines, which detect a reader that has gone.
	keepTime = 15 * time.Second
	// maxRuns bounds the runs of one line. If there are more, the page loads the list.
	maxRuns = 50
)

// pageVersions identify the state of the pages. A page with another version loads its data again, so an interrupted
// stream loses no change.
type pageVersions struct {
	Held    uint64 `json:"held"`
	APIs    string `json:"apis"`
	Servers uint64 `json:"servers"`
	Down    int    `json:"down"` // the number of servers that are down
	Skills  int64  `json:"skills"`
	Load    Load   `json:"load"`
}

type streamLine struct {
	Versions *pageVersions `json:"versions,omitempty"`
	// After is the position from which to continue if the stream breaks.
	After string `json:"after,omitempty"`
	// Gap means that events are missing: pages that show runs load them again.
	Gap bool `json:"gap,omitempty"`
	// Runs are the runs that started or changed, in their present state.
	Runs []operatorapi.Run `json:"runs,omitempty"`
	// Touched means that the watched run has new exchanges or output.
	Touched bool `json:"touched,omitempty"`
	Alerts  bool `json:"alerts,omitempty"`
}

// addEvent adds an event. watched is the run that the page shows.
func (n *streamLine) addEvent(e operatorapi.HistoryEvent, watched string) {
	n.After = e.Cursor
	id := e.RunID
	switch e.Kind {
	case operatorapi.EventGap:
		n.Gap = true
	case operatorapi.EventAlert:
		n.Alerts = true
	case operatorapi.EventExchange:
		if e.Exchange != nil {
			id = e.Exchange.Run
		}
	case operatorapi.EventRun:
		if e.Run == nil {
			break
		}
		id = e.Run.ID
		// Only the latest state of a run counts, so one line has each run once.
		for i := range n.Runs {
			if n.Runs[i].ID == id {
				n.Runs[i] = *e.Run
				id = ""
			}
		}
		switch {
		case id == "":
			id = e.Run.ID
		// Too many runs for one line: the page loads the list.
		case len(n.Runs) >= maxRuns:
			n.Gap = true
		default:
			n.Runs = append(n.Runs, *e.Run)
		}
	}
	n.Touched = n.Touched || watched != "" && id == watched
}

// streamChanges streams changes, at most one JSON line per tick. The browser reads the stream while its page is
// visible. The parameter run is the run that the page shows. after is the end of an earlier stream.
func (c *Console) streamChanges(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	ctx, cancel := context.WithCancel(r.Context())
	events, ended := make(chan []operatorapi.HistoryEvent), make(chan struct{})
	go func() {
		defer close(ended)
		operatorapi.SendEvents(ctx, c.cfg.History.Follow, r.URL.Query().Get("after"), events)
	}()
	// The goroutine must end first, because it uses the request's context.
	defer func() { cancel(); <-ended }()
	watched := r.URL.Query().Get("run")
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var last, now pageVersions
	var line streamLine
	var wrote time.Time
	for n := 0; ; {
		select {
		case list := <-events:
			for _, e := range list {
				line.addEvent(e, watched)
			}
			continue
		case <-ticks.C:
		// A session that ends must also end its streams, not only later requests.
		case <-sessionOf(r).ended:
			return
		case <-c.cfg.Stop:
			return
		case <-ctx.Done():
			return
		}
		c.readVersions(ctx, &now, n%slowTicks == 0)
		if n++; n == 1 || now != last {
			// The first line always has the versions, so that a new page can compare its data.
			line.Versions, last = &now, now
		}
		var err error
		switch {
		case line.Versions != nil || line.After != "":
			err = enc.Encode(line)
			line, wrote = streamLine{}, time.Now()
		// An empty line fails if the reader has gone.
		case time.Since(wrote) >= keepTime:
			_, err = io.WriteString(w, "\n")
			wrote = time.Now()
		default:
			continue
		}
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			return
		}
	}
}

// readVersions reads the versions. It reads the expensive ones only if all is set.
func (c *Console) readVersions(ctx context.Context, v *pageVersions, all bool) {
	v.APIs, v.Skills, v.Load = c.cfg.Catalog().Version, c.skills.Load(), c.cfg.Load()
	if !all {
		return
	}
	states := c.cfg.Servers.ListStates()
	v.Servers, v.Down = hashOf(states), 0
	for _, s := range states {
		if s.Down {
			v.Down++
		}
	}
	if list, err := c.cfg.Approvals.ListHeld(ctx); err == nil {
		plans, _ := c.cfg.Approvals.ListPlans(ctx) // the page shows the error
		v.Held = hashOf([]any{list, plans})
	}
}

// hashOf returns a number that changes with a value.
func hashOf(v any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) // the values are our types, and a hash accepts all bytes
	return h.Sum64() >> 11           // fits into a JavaScript number
}
