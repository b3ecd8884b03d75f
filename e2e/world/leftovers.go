package world

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// Snapshot is what exists in the tests' namespaces: everything a start of CodeForge could leave behind.
type Snapshot map[string]bool

// TakeSnapshot lists what exists now.
func TakeSnapshot() Snapshot {
	s := Snapshot{}
	for _, p := range processes() {
		s[p] = true
	}
	for _, path := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		for _, line := range lines(path) {
			s[path+": "+identity(path, line)] = true
		}
	}
	for _, pattern := range []string{"/run/netns/*", "/dev/shm/*", "/tmp/codeforge*", "/sys/fs/cgroup/codeforge*", "/sys/fs/cgroup/*/codeforge*", "/sys/fs/cgroup/*/*/codeforge*"} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			if besides.MatchString(f) {
				continue
			}
			s["file "+f] = true
		}
	}
	if links, err := netlink.LinkList(); err == nil {
		for _, l := range links {
			s["network device "+l.Attrs().Name] = true
		}
	}
	if out, err := exec.Command("iptables-save").Output(); err == nil { //nolint:noctx // ends by itself
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
				s["iptables "+strings.TrimSpace(line)] = true
			}
		}
	}
	return s
}

// besides matches the files of tests in Docker mode and on Kubernetes, and of benchmarks, which may run at the same time.
var besides = regexp.MustCompile(`^(/tmp/codeforge-(apis|compose|e2e|bench)-|/run/netns/c(ni-|odeforge-k8s)|/sys/fs/cgroup/.*/codeforge-k8s)`)

// processes lists all processes of the pid namespace except process 1, this one and zombies.
func processes() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if strings.HasPrefix(strings.TrimSpace(after), "Z") {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		out = append(out, fmt.Sprintf("process %d %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return out
}

func lines(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// identity is the part of a line that does not change: the mount point, or a socket's name.
func identity(path, line string) string {
	f := strings.Fields(line)
	switch {
	case strings.HasSuffix(path, "mountinfo") && len(f) > 4:
		return f[4]
	case strings.HasSuffix(path, "unix") && len(f) > 7:
		return f[7]
	}
	return ""
}

// Leftovers lists what exists now and was not in the snapshot, after giving processes time to end.
func (s Snapshot) Leftovers() []string {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := s.now()
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// now lists what exists at this moment and was not in the snapshot.
func (s Snapshot) now() []string {
	var left []string
	for thing := range TakeSnapshot() {
		if !s[thing] {
			left = append(left, thing)
		}
	}
	sort.Strings(left)
	return left
}

// Below lists the processes whose program has this name and that descend from the process root.
func Below(root int, name string) []int {
	parents, names := map[int]int{}, map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		var state string
		var ppid int
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		if _, err := fmt.Sscan(rest, &state, &ppid); err != nil || state == "Z" {
			continue
		}
		parents[pid] = ppid
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		first, _, _ := strings.Cut(string(cmdline), "\x00")
		names[pid] = filepath.Base(first)
	}
	var out []int
	for pid := range parents {
		for p := pid; p != 0; p = parents[p] {
			if p == root && names[pid] == name {
				out = append(out, pid)
				break
			}
		}
	}
	sort.Ints(out)
	return out
}
