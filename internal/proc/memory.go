package proc

import (
	"bytes"
	"os"
	"strconv"
)

// Memory is what a process holds, in bytes: its pages in memory and in swap, and the tables that find them, which can
// be larger where it only reads. It is 0 when there is no such process.
func Memory(pid int) int64 {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0
	}
	if held, told := sum(data); told {
		return held
	}
	// The main thread has ended, and with it what is said under the process's number; others may go on.
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		if data, err := os.ReadFile(dir + "/task/" + t.Name() + "/status"); err == nil {
			if held, told := sum(data); told {
				return held
			}
		}
	}
	return 0
}

// sizes are the lines of a status that add up to what the process holds, in kB.
var sizes = [...][]byte{[]byte("VmRSS:"), []byte("VmPTE:"), []byte("VmSwap:"), []byte("HugetlbPages:")}

// sum adds the sizes up; told says whether there are any.
func sum(status []byte) (total int64, told bool) {
	for len(status) > 0 {
		line, rest, _ := bytes.Cut(status, []byte{'\n'})
		status = rest
		for _, name := range sizes {
			value, ok := bytes.CutPrefix(line, name)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(value, []byte(" kB")))), 10, 64)
			if err == nil {
				total, told = total+n<<10, true
			}
		}
	}
	return total, told
}

// OOMKills returns how many processes the kernel has killed since the machine started, because the machine or a cgroup
// had no memory left. It is below 0 before Linux 4.13, which does not count them.
func OOMKills() int64 {
	data, _ := os.ReadFile("/proc/vmstat")
	for line := range bytes.Lines(data) {
		if text, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
