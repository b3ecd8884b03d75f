package proc

import (
	"bytes"
	"os"
	"strconv"
)

// MemoryOf returns the memory of a process in bytes: its pages in memory and in swap, and their page tables. The tables
// can be larger than the pages if the process only reads. If the process does not exist, the result is 0.
func MemoryOf(pid int) int64 {
	dir := "/proc/" + strconv.Itoa(pid)
	data, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0
	}
	if held, told := sumSizes(data); told {
		return held
	}
	// The main thread has ended, and the process's status no longer has sizes. Other threads may still run.
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		if data, err := os.ReadFile(dir + "/task/" + t.Name() + "/status"); err == nil {
			if held, told := sumSizes(data); told {
				return held
			}
		}
	}
	return 0
}

// sizes are the lines of a status that add up to a process's memory, in kB.
var sizes = [...][]byte{[]byte("VmRSS:"), []byte("VmPTE:"), []byte("VmSwap:"), []byte("HugetlbPages:")}

// sumSizes adds up the sizes. told reports whether the status has any.
func sumSizes(status []byte) (total int64, told bool) {
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

// OOMKills returns the number of processes that the kernel has killed since boot because the machine or a cgroup had no
// memory left. Before Linux 4.13, which does not count them, it returns -1.
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
