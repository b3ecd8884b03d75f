package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// followProxy serves a proxy until ctx ends: as the broker of MCP servers, as the receiver of its alarms, and as the
// recorder of its events.
func (d *daemon) followProxy(ctx context.Context, proxy *proxyapi.Client) {
	var parts sync.WaitGroup
	defer parts.Wait()
	// Without MCP servers, several mcp-servers may share the proxy, which accepts only one broker.
	if d.fleet == nil || d.settings.Servers > 0 {
		parts.Go(func() { d.serveProxy(ctx, proxy) })
	}
	parts.Go(func() { d.watchAlarms(ctx, proxy) })
	if d.history.Mode() != history.Off {
		parts.Go(func() { d.recordExchanges(ctx, proxy) })
	}
}

// serveProxy answers the proxy's requests to the broker of MCP servers until ctx ends. It connects again if the
// connection breaks.
func (d *daemon) serveProxy(ctx context.Context, proxy *proxyapi.Client) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := proxy.ServeBroker(ctx, d.broker)
		if ctx.Err() != nil {
			return
		}
		// A connection that lasted was no failure, so the pauses start again from the shortest.
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		d.log.Debug("no connection for MCP servers to the proxy, trying again",
			logline.Tag("server"), slog.String("error", err.Error()))
		timing.WaitFor(ctx, pause)
	}
}

// recordExchanges stores the exchanges that the proxy reports, until ctx ends. If this process is too slow or the
// connection breaks, the missing exchanges are in the runs' receipts.
func (d *daemon) recordExchanges(ctx context.Context, proxy *proxyapi.Client) {
	// Events may be missing after a connection breaks, so readers of the history must load it again.
	eachEvent(ctx, proxy, proxyapi.RequestEvents, d.history.NotifyGap, func(e proxyapi.Event) {
		if e.Lost > 0 {
			d.history.NotifyGap()
		}
		if e.Exchange != nil {
			d.history.RecordExchange(*e.Exchange)
		}
	})
}

// watchAlarms ends runs and freezes sessions when the proxy reports an alarm, until ctx ends. Missed alarms are in the
// runs' receipts.
func (d *daemon) watchAlarms(ctx context.Context, proxy *proxyapi.Client) {
	eachEvent(ctx, proxy, proxyapi.AlarmEvents, func() {}, func(e proxyapi.Event) {
		if e.Alarm != nil {
			d.executor.RaiseAlarm(*e.Alarm)
		}
	})
}

// eachEvent calls on for each of these events of the proxy, until ctx ends. If the connection breaks, it calls lost
// before it connects again.
func eachEvent(ctx context.Context, proxy *proxyapi.Client, of proxyapi.Events, lost func(), on func(proxyapi.Event)) {
	for ctx.Err() == nil {
		if events, err := proxy.Subscribe(ctx, of); err == nil {
			_ = events.EachEvent(on) // until the connection breaks
		}
		if timing.WaitFor(ctx, firstPause) {
			lost()
		}
	}
}

func (d *daemon) showAlarm(a operatorapi.Alarm) {
	d.history.AddAlert(operatorapi.Alert{
		Kind: operatorapi.AlertAlarm, Run: a.Run, Title: "Code was about to send " + a.DescribeSecret(),
		Text: strings.TrimSpace(a.Method+" "+a.Host) + ", in the " + a.In,
	})
}
