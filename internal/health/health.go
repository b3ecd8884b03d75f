// Package health runs a long-lived healthcheck. Starting a process in a container costs an engine tens of milliseconds
// of CPU, asking a daemon again next to nothing: so one process keeps checking instead of being started every two
// seconds. While a container starts, other containers wait for its health, so a passing check returns immediately.
package health

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// startPeriod is how long a container may take to become ready. For this long after its start a passing check
	// returns immediately.
	startPeriod = 20 * time.Second
	// interval is the pause between two probes, probeTimeout how long one may take.
	interval     = time.Second
	probeTimeout = 5 * time.Second
)

// Check probes once and returns the error. If the probe passes and process 1 is older than startPeriod, it keeps
// probing for d and returns the first error. It returns nil when ctx ends.
func Check(ctx context.Context, d time.Duration, probe func(context.Context) error) error {
	stat, _ := os.ReadFile("/proc/1/stat")
	up, _ := os.ReadFile("/proc/uptime")
	if age(string(stat), string(up)) < startPeriod {
		d = 0
	}
	return check(ctx, d, probe)
}

func check(ctx context.Context, d time.Duration, probe func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for began := time.Now(); ; {
		err := once(ctx, probe)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if time.Since(began)+interval > d {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func once(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return probe(ctx)
}

// age is how long ago a process started, from its /proc/PID/stat and /proc/uptime; 0 when they cannot be parsed.
func age(stat, uptime string) time.Duration {
	const (
		start = 19  // of the fields behind the name, see proc(5)
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
