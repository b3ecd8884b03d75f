package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// watchPause is the pause between two rounds of probes, watchTimeout the time limit for one answer.
	watchPause   = 5 * time.Second
	watchTimeout = 10 * time.Second
	// maxMissed is the number of consecutive rounds without an answer after which a daemon counts as hung. A daemon misses
	// one round if the machine sleeps or is frozen, because the clock runs on.
	maxMissed = 3
)

// livenessProbe asks one daemon for any answer.
type livenessProbe struct {
	name string
	ask  func(context.Context) error
}

// watchDaemons asks all daemons in rounds until ctx ends, and then returns nil. If a daemon misses maxMissed rounds in
// a row, because it hangs or its socket is gone, the error names it.
func watchDaemons(ctx context.Context, daemons []livenessProbe) error {
	missed := make([]int, len(daemons))
	for {
		if !timing.WaitFor(ctx, watchPause) {
			return nil
		}
		answers := askAll(ctx, daemons)
		for i, err := range answers {
			missed[i]++
			if err == nil {
				missed[i] = 0
			}
			if missed[i] == maxMissed && ctx.Err() == nil {
				return fmt.Errorf("%s does not answer: %w", daemons[i].name, err)
			}
		}
	}
}

// askAll asks all daemons in parallel, so that a round takes at most watchTimeout.
func askAll(ctx context.Context, daemons []livenessProbe) []error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	answers := make([]error, len(daemons))
	var wg sync.WaitGroup
	for i, d := range daemons {
		wg.Go(func() { answers[i] = d.ask(ctx) })
	}
	wg.Wait()
	return answers
}

// listProbes lists the probes of the watchdog. Each uses the socket that clients use, so that a removed socket counts
// as no answer. A daemon that answers "not ready" is alive.
func (s *supervisor) listProbes() []livenessProbe {
	return []livenessProbe{
		{"egress-proxy", func(ctx context.Context) error {
			c := proxyapi.NewClient(s.view.Path("run", statedir.ControlSocket))
			defer c.Close()
			_, err := c.FetchHealth(ctx)
			return err
		}},
		{"sandboxd", func(ctx context.Context) error {
			_, err := s.sandboxHealth(ctx)
			return err
		}},
		{"mcp-server", func(ctx context.Context) error {
			return askSocket(ctx, s.view.Path("run", statedir.MCPSocket))
		}},
	}
}

// askSocket asks the HTTP server on a unix socket for any answer.
func askSocket(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		// An old connection would still answer after its socket has been removed.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
