package console

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// askTime bounds the answer of another daemon to the console.
const askTime = 3 * time.Second

// partCheck is the result of one check: whether a part answers, and how fast.
type partCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// reportStatus reports the running parts and their health.
func (c *Console) reportStatus(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	began := time.Now()
	_, err := c.cfg.Proxy.FetchInspection(ctx)
	proxy := partCheck{"proxy", err == nil, "answers in " + time.Since(began).Round(100*time.Microsecond).String()}
	if err != nil {
		proxy.Text = err.Error()
	}
	began = time.Now()
	err = c.cfg.Ready(ctx)
	sandbox := partCheck{"sandbox", err == nil, "ready, asked in " +
		time.Since(began).Round(100*time.Microsecond).String()}
	if err != nil {
		sandbox.Text = err.Error()
	}
	kept := partCheck{Name: "store"}
	switch s, err := c.cfg.History.Status(ctx); {
	case err != nil:
		kept.Text = err.Error()
	case s.Problem != "":
		kept.Text = s.Problem
	default:
		kept.OK, kept.Text = true, cmp.Or(s.Path, "HISTORY is "+s.Mode)
	}
	return struct {
		operatorapi.About
		Mode   string      `json:"mode"`
		Load   Load        `json:"load"`
		Checks []partCheck `json:"checks"`
	}{c.cfg.About, c.cfg.Mode, c.cfg.Load(), []partCheck{proxy, sandbox, kept}}, nil
}

// listAPIs returns apis/ as the proxy loaded it, and the traffic of the last day.
func (c *Console) listAPIs(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	in, err := c.cfg.Proxy.FetchInspection(ctx)
	if err != nil {
		return nil, &pageError{http.StatusBadGateway, "The proxy does not answer: " + err.Error()}
	}
	until := time.Now()
	hours, err := c.cfg.History.TrafficByHour(ctx, until.Add(-24*time.Hour), until, time.Hour)
	if err != nil {
		hours = nil // without a store there is no chart
	}
	return struct {
		proxyapi.Inspection
		Hours any `json:"hours"`
	}{in, hours}, nil
}

// listServers returns the MCP servers: their states, and how each is started or reached.
func (c *Console) listServers(*http.Request) (any, error) {
	type server struct {
		Name   string              `json:"name"`
		Config *mcpserver.Settings `json:"config,omitempty"`
	}
	list := []server{}
	for _, a := range c.cfg.Catalog().APIs {
		if a.Server != nil {
			s := *a.Server
			s.Env, s.Headers = nil, nil // constants may be private
			list = append(list, server{a.Name, &s})
		}
	}
	return map[string]any{"states": c.cfg.Servers.ListStates(), "configs": list}, nil
}
