// Package health makes a healthcheck that stays. To start a process in a container costs an engine tens of
// milliseconds of CPU, to ask a daemon again next to nothing: so a check does not come back every two seconds, it goes
// on looking. While a container starts, what waits for its health needs an answer at once; so there it gives one.
package health

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// young is how long a container may take until it is ready: as long is a good look answered at once.
	young = 20 * time.Second
	// every is the pause between two looks, lookTime how long one may take.
	every    = time.Second
	lookTime = 5 * time.Second
)

// Check looks once and returns what is wrong. If nothing is, and process 1 has run for longer than a start takes, it
// goes on looking until d is over, and returns the first thing that is wrong. The end of ctx ends it well.
func Check(ctx context.Context, d time.Duration, look func(context.Context) error) error {
	stat, _ := os.ReadFile("/proc/1/stat")
	up, _ := os.ReadFile("/proc/uptime")
	if age(string(stat), string(up)) < young {
		d = 0
	}
	return check(ctx, d, look)
}

func check(ctx context.Context, d time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for began := time.Now(); ; {
		err := once(ctx, look)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if time.Since(began)+every > d {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func once(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return look(ctx)
}

// age is how long ago a process started, from its /proc/PID/stat and /proc/uptime; 0 when they do not say.
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
