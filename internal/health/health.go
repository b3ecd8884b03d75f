// Package health runs a long-lived healthcheck, and passes it the reason why a daemon cannot start.
//
// Starting a process in a container takes the engine tens of milliseconds of CPU, while another request to a daemon
// takes next to no time. So one process keeps checking instead of being started every second. While a container starts,
// other containers wait for its health, so a passing check returns immediately.
package health

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

const (
	// startPeriod limits how long a container may take to become ready. During this time a failed probe is retried, and a
	// passing one returns immediately.
	startPeriod = 30 * time.Second
	// startPause is the pause between probes during the start, because other containers wait for this one.
	startPause = 100 * time.Millisecond
	// interval is the pause between later probes. probeTimeout limits one probe.
	interval     = time.Second
	probeTimeout = 5 * time.Second
)

// Check probes once and returns the error. While process 1 is younger than startPeriod, it repeats the probe until it
// passes or process 1 reports that it cannot start (see HoldUntilStopped). If process 1 is older and the probe passes,
// Check keeps probing for d and returns the first error. It returns nil if ctx ends.
func Check(ctx context.Context, d time.Duration, probe func(context.Context) error) error {
	c := healthcheck{probe: probe, problem: StartProblem, young: func() bool {
		stat, _ := os.ReadFile("/proc/1/stat")
		up, _ := os.ReadFile("/proc/uptime")
		return processAge(string(stat), string(up)) < startPeriod
	}}
	return c.runCheck(ctx, d)
}

type healthcheck struct {
	probe   func(context.Context) error
	problem func() string // returns why the daemon cannot start
	young   func() bool   // reports whether the container is starting
}

func (c healthcheck) runCheck(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	young := c.young()
	for began := time.Now(); ; {
		pause := interval
		err := checkOnce(ctx, c.probe)
		if ctx.Err() != nil || err == nil && (young || time.Since(began)+interval > d) {
			return nil
		}
		if err != nil {
			// Process 1 has given up: more probes would only delay the report.
			if reason := c.problem(); reason != "" {
				return errors.New("cannot start: " + reason)
			}
			if young = young && c.young(); !young {
				return err
			}
			pause = startPause
		}
		if !timing.WaitFor(ctx, pause) {
			return nil
		}
	}
}

func checkOnce(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return probe(ctx)
}

// processAge returns the time since a process started, from its /proc/PID/stat and /proc/uptime. It returns 0 if they
// cannot be parsed.
func processAge(stat, uptime string) time.Duration {
	const (
		start = 19  // index among the fields after the name, see proc(5)
		ticks = 100 // USER_HZ
	)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	up, _, _ := strings.Cut(uptime, " ")
	now, err := strconv.ParseFloat(up, 64)
	if err != nil || len(fields) <= start {
		return 0
	}
	began, err := strconv.ParseFloat(fields[start], 64)
	if err != nil {
		return 0
	}
	return time.Duration((now - began/ticks) * float64(time.Second))
}
