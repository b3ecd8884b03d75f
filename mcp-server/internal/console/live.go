package console

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"time"
)

const (
	// tick is the least time between two lines of a stream.
	tick = 250 * time.Millisecond
	// slowTicks is how many ticks pass between looks at what costs more to look at.
	slowTicks = 4
	// keepTime is the time between lines that say nothing, which show whether the reader is still there.
	keepTime = 15 * time.Second
)

// Versions of what pages show. A page that sees another one than it has asks again: so nothing is lost where a stream
// breaks and begins anew, however many changes there were.
type versions struct {
	Runs    uint64 `json:"runs"`
	Held    uint64 `json:"held"`
	APIs    string `json:"apis"`
	Servers uint64 `json:"servers"`
	Skills  int64  `json:"skills"`
	Load    Load   `json:"load"`
}

// live streams the versions, a line of JSON whenever one has changed. The browser reads it while the page is visible.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var last, now versions
	wrote := time.Time{}
	for n := 0; ; n++ {
		c.look(r, &now, n%slowTicks == 0)
		var err error
		switch {
		case n == 0 || now != last:
			err = enc.Encode(now)
			last, wrote = now, time.Now()
		case time.Since(wrote) >= keepTime:
			_, err = io.WriteString(w, "\n")
			wrote = time.Now()
		}
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-of(r).ended:
			return
		case <-c.cfg.Stop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// look takes the versions, those that cost more only when all are asked for.
func (c *Console) look(r *http.Request, v *versions, all bool) {
	v.APIs, v.Skills, v.Load = c.cfg.Catalog().Version, c.skills.Load(), c.cfg.Load()
	if all {
		v.Servers = sum(c.cfg.Servers.States())
	}
	_ = r
}

// sum is a number that changes with a value.
func sum(v any) uint64 {
	h := fnv.New64a()
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Append(nil, err)
	}
	_, _ = h.Write(text)
	return h.Sum64() >> 11 // what a JavaScript number holds
}
