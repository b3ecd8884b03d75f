package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// fewSockets is a number of TCP or UDP sockets that cannot hold much. SocketMemory does not read their list, which
// takes a millisecond, if there are so few.
const fewSockets = 32

// SocketMemory returns the bytes that a user's TCP and UDP sockets in the network namespace of pid hold: unread ones,
// and those that the other end has not acknowledged. It is 0 if there are few sockets, or if the kernel's lists cannot
// be read.
func SocketMemory(pid, uid int) (total int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/net/"
	counts, err := os.ReadFile(dir + "sockstat")
	if err != nil {
		return 0
	}
	for _, protocol := range []string{"tcp", "udp"} {
		_, rest, _ := strings.Cut(string(counts), strings.ToUpper(protocol)+": inuse ")
		number, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(number); err == nil && n >= fewSockets {
			total += sumQueues(dir+protocol, uid)
		}
	}
	return total
}

// sumQueues sums up the queues of a user's sockets in a list of the kernel.
func sumQueues(path string, uid int) (total int64) {
	list, err := os.ReadFile(path) //nolint:gosec // a path in /proc
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line) // sl local rem st tx:rx tr:tm retrnsmt uid ...
		if len(f) < 8 || string(f[7]) != strconv.Itoa(uid) {
			continue
		}
		sent, received, _ := bytes.Cut(f[4], []byte{':'})
		for _, queue := range [][]byte{sent, received} {
			if n, err := strconv.ParseInt(string(queue), 16, 64); err == nil {
				total += n
			}
		}
	}
	return total
}
