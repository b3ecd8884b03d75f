package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/serverstate"
)

// States are the servers of the catalog, in the order of their names.
func (b *Broker) States() []serverstate.Server {
	cat := b.cfg.Catalog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.follow(cat)
	all := make([]serverstate.Server, 0, len(b.servers))
	for _, s := range b.servers {
		all = append(all, s.state(time.Now()))
	}
	slices.SortFunc(all, func(x, y serverstate.Server) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// state is the server's. Broker.mu is held.
func (s *server) state(now time.Time) serverstate.Server {
	out := serverstate.Server{
		Name: s.api.Name, State: serverstate.Stopped, Processes: len(s.instances), Problem: s.problem,
	}
	if s.recall(); s.known {
		n := len(s.callable(s.tools))
		out.Tools = &n
		out.Held = s.held()
	}
	if now.Before(s.breaker.until) {
		out.State = serverstate.Failing
	}
	for _, i := range s.instances {
		out.Calls += i.users
		select {
		case <-i.ready:
			out.State = serverstate.Running
		default:
			if out.State != serverstate.Running {
				out.State = serverstate.Starting
			}
		}
	}
	return out
}
