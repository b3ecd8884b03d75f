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
// be read. If the namespace is the user's alone, sockets without a descriptor count too, which before Linux 6.17 appear
// as root's: closed before all was sent, or not accepted.
func SocketMemory(pid, uid int, alone bool) (total int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/net/"
	counts, err := os.ReadFile(dir + "sockstat")
	if err != nil {
		return 0
	}
	for _, protocol := range []string{"tcp", "udp"} {
		_, rest, _ := strings.Cut(string(counts), strings.ToUpper(protocol)+": inuse ")
		number, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(number); err == nil && n >= fewSockets {
			list, _ := os.ReadFile(dir + protocol) //nolint:gosec // a path in /proc
			total += sumQueues(list, uid, alone)
		}
	}
	return total
}

// sumQueues sums up the queues of a user's sockets in a list of the kernel, and of those without a descriptor if alone.
func sumQueues(list []byte, uid int, alone bool) (total int64) {
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line) // sl local rem st tx:rx tr:tm retrnsmt uid timeout inode ...
		if len(f) < 10 || string(f[7]) != strconv.Itoa(uid) && (!alone || string(f[9]) != "0") {
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
