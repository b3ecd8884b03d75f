// Package proc reads the kernel's data about processes in /proc. sandboxd uses it to check a sandbox before it sends
// code, and daemons use it to check that their capabilities are gone. The kernel's state counts, not the requested one.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Status is the content of /proc/<pid>/status.
type Status struct {
	State  byte // R, S, D, T, Z, X ...
	Parent int
	// Threads counts the threads, including an ended main thread. A process whose main thread has ended is in state Z,
	// even if other threads still run.
	Threads int
	UID     [4]int // real, effective, saved, file system
	GID     [4]int
	Groups  []int
	// Caps is the union of the permitted, effective, inheritable and ambient sets; Bounding the bounding set.
	Caps, Bounding uint64
	NoNewPrivs     bool
	Seccomp        int // 0 off, 1 strict, 2 filter
}

// IsAlive reports whether any thread of the process still runs.
func (s Status) IsAlive() bool { return s.State != 'Z' && s.State != 'X' || s.Threads > 1 }

// ReadStatus reads the status of a process. If the process does not exist, the error is fs.ErrNotExist or ESRCH.
func ReadStatus(pid int) (Status, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return Status{}, err
	}
	return parseStatus(string(data))
}

func parseStatus(text string) (Status, error) {
	var s Status
	seen := 0
	var bad error
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "State":
			s.State = value[0]
		case "PPid":
			s.Parent, err = strconv.Atoi(value)
		case "Threads":
			s.Threads, err = strconv.Atoi(value)
		case "Uid":
			err = parseFour(value, &s.UID)
		case "Gid":
			err = parseFour(value, &s.GID)
		case "Groups":
			s.Groups, err = parseNumbers(value)
		case "CapInh", "CapPrm", "CapEff", "CapAmb":
			var set uint64
			set, err = strconv.ParseUint(value, 16, 64)
			s.Caps |= set
		case "CapBnd":
			s.Bounding, err = strconv.ParseUint(value, 16, 64)
		case "NoNewPrivs":
			s.NoNewPrivs = value == "1"
		case "Seccomp":
			s.Seccomp, err = strconv.Atoi(value)
		default:
			continue
		}
		seen++
		if err != nil {
			bad = fmt.Errorf("status line %q: %w", strings.TrimSpace(line), err)
		}
	}
	// A missing line would leave a zero, which CheckConfinement takes for the safe value.
	if bad == nil && seen != 13 {
		bad = fmt.Errorf("status has %d of the 13 lines looked for", seen)
	}
	return s, bad
}

func parseFour(value string, to *[4]int) error {
	list, err := parseNumbers(value)
	if err == nil && len(list) != 4 {
		err = errors.New("want four numbers")
	}
	if err != nil {
		return err
	}
	copy(to[:], list)
	return nil
}

func parseNumbers(value string) ([]int, error) {
	var list []int
	for _, f := range strings.Fields(value) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// NamespaceOf returns the identity of a namespace: the inode of /proc/<pid>/ns/<kind>.
func NamespaceOf(pid int, kind string) (uint64, error) {
	var st unix.Stat_t
	path := fmt.Sprintf("/proc/%d/ns/%s", pid, kind)
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// ListChildren lists the child processes of all threads of pid.
func ListChildren(pid int) ([]int, error) {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, t := range tasks {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list, err := parseNumbers(string(data))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// ProcessorTime returns the processor time of all threads of a process, or 0 if the process does not exist
// (clock_getcpuclockid(3)).
func ProcessorTime(pid int) time.Duration {
	const wholeProcess = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|wholeProcess), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ListProcesses lists the visible processes.
func ListProcesses() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// ListOfUser lists the processes with this real, effective or saved uid: those alive, and zombies. It skips processes
// for which known returns true, because reading one takes some fifty microseconds.
func ListOfUser(uid int, known func(pid int) bool) (alive, dead []int, err error) {
	pids, err := ListProcesses()
	if err != nil {
		return nil, nil, err
	}
	for _, pid := range pids {
		if known(pid) {
			continue
		}
		s, err := ReadStatus(pid)
		if isGone(err) {
			continue
		}
		switch {
		case err != nil:
			return nil, nil, err
		// A set-user-ID program may keep the user in only one of the three ids.
		case s.UID[0] != uid && s.UID[1] != uid && s.UID[2] != uid:
		case s.IsAlive():
			alive = append(alive, pid)
		default:
			dead = append(dead, pid)
		}
	}
	return alive, dead, nil
}

// exiting is PF_EXITING among a process's flags (include/linux/sched.h).
const exiting = 0x4

// IsRunning reports whether a process exists and is not exiting. An exit can take milliseconds, during which the
// process still counts as alive (proc_pid_stat(5)).
func IsRunning(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	const state, flags = 0, 6 // of the fields after the name
	// The name may contain spaces and parentheses, so parse after the last one.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= flags || bytes.ContainsAny(fields[state], "ZX") {
		return false
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && n&exiting == 0
}

// LastPID returns the process or thread id that this pid namespace assigned last.
func LastPID() (int, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(data)
	if len(fields) != 5 {
		return 0, fmt.Errorf("/proc/loadavg is %q", data)
	}
	return strconv.Atoi(string(fields[4]))
}

// isGone reports whether an error means that the process has ended.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }
