package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
)

// The crowd of a laptop with containers: mounts, and the ends of idle connections.
const (
	crowdMounts  = 500
	crowdSockets = 2000
)

// tick is the unit of /proc/stat (USER_HZ, which is 100 on all Linux machines).
const tick = 10 * time.Millisecond

// busy returns the processor time that all processes of the machine have used so far.
func busy() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	const user, idle, iowait, steal = 1, 4, 5, 8
	fields := bytes.Fields(line)
	if len(fields) <= steal {
		return 0, errors.New("/proc/stat has an unknown form")
	}
	var sum time.Duration
	for i, f := range fields[user:steal] { // steal is the time of other machines, and later fields repeat user's
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading /proc/stat: %w", err)
		}
		if i += user; i != idle && i != iowait {
			sum += time.Duration(n) * tick
		}
	}
	return sum, nil
}

// maxOthers is the part of one processor that other programs may use. More would hide the difference of two loads.
const maxOthers = 0.1

// isBusy reports whether other programs use the processors.
func isBusy() (bool, error) {
	time.Sleep(2 * settle) // the last load ends
	before, err := busy()
	if err != nil {
		return false, err
	}
	time.Sleep(5 * settle)
	after, err := busy()
	return (after - before).Seconds() > maxOthers*(5*settle).Seconds(), err
}

// load is many calls of a function: the processor time of one, in milliseconds, and the calls in a second.
type load struct{ cost, rate float64 }

// measureLoad calls f from a number of clients, each times in sequence. The cost includes the work after the last call.
func measureLoad(clients, each int, f func() error) (load, error) {
	before, err := busy()
	if err != nil {
		return load{}, err
	}
	took, err := atOnce(clients, each, f)
	if err != nil {
		return load{}, err
	}
	time.Sleep(settle)
	after, err := busy()
	n := float64(clients * each)
	return load{(after - before).Seconds() * 1e3 / n, n / took.Seconds()}, err
}

// cost compares the processor time of runs by two clients with bare Deno's, and measures the runs that eight clients
// sustain. It adds the rows cost and rate.
func cost(ctx context.Context, cfg Config, s *server, cost, rate string, col *bench.Collector) error {
	ours := func() error { _, _, err := s.run(ctx, Script, "2"); return err }
	theirs := func() error { _, err := timed(cfg.deno().bare(Script, "")); return err }
	for round := range cfg.Rounds {
		log.Printf("%s, round %d of %d", cost, round+1, cfg.Rounds)
		others, err := isBusy()
		if err != nil {
			return err
		}
		a, err := measureLoad(2, 2*cfg.Each, ours)
		if err != nil {
			return err
		}
		b, err := measureLoad(2, 2*cfg.Each, theirs)
		if err != nil {
			return err
		}
		if others {
			col.Miss("other programs use the processors", cost)
		} else {
			col.Add(cost, a.cost/b.cost, "%.1f ms a run, bare %.1f ms", a.cost, b.cost)
		}
		if a, err = measureLoad(8, cfg.Each, ours); err != nil {
			return err
		}
		if b, err = measureLoad(8, cfg.Each, theirs); err != nil {
			return err
		}
		col.Add(rate, a.rate, "%.1f ms a run; bare %.0f runs/s", a.cost, b.rate)
	}
	return nil
}

// Cost measures the processor time of a run in embedded mode, without and with a crowd on the machine. It must be called
// in an arena, whose mounts and sockets end with it.
func Cost(ctx context.Context, cfg Config) (bench.Report, error) {
	col := &bench.Collector{}
	s, err := embedded(ctx, cfg, cfg.deno(), 2, nil)
	if err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	if err := cost(ctx, cfg, s, "runs.cost", "runs.rate", col); err != nil {
		return bench.Report{}, err
	}
	s.Close()
	gather, err := crowd(ctx)
	if err != nil {
		return bench.Report{}, err
	}
	defer gather()
	if s, err = embedded(ctx, cfg, cfg.deno(), 2, nil); err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	err = cost(ctx, cfg, s, "runs.cost.crowd", "runs.rate.crowd", col)
	return bench.Report{Results: col.Results()}, err
}

// crowd makes mounts and idle connections. The returned function closes the connections.
func crowd(ctx context.Context) (func(), error) {
	for i := range crowdMounts {
		dir := filepath.Join(arena.Dir, "crowd", strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := unix.Mount("crowd", dir, "tmpfs", 0, "size=4k"); err != nil {
			return nil, fmt.Errorf("making mounts: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	open := []interface{ Close() error }{l}
	end := func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	for range crowdSockets / 2 {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", l.Addr().String())
		if err != nil {
			end()
			return nil, err
		}
		open = append(open, c)
		if c, err = l.Accept(); err != nil {
			end()
			return nil, err
		}
		open = append(open, c)
	}
	return end, nil
}
