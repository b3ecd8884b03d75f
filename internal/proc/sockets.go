package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// littleMemory is the memory of all sockets of a protocol below which SocketMemory does not read their list, in bytes.
// Reading takes some milliseconds. One TCP socket can hold 36 MiB.
const littleMemory = 4 << 20

// SocketMemory returns the bytes in a user's TCP and UDP sockets in the network namespace of pid: unread data, and data
// that the peer has not acknowledged. It returns 0 if all sockets of the machine hold little, or if the kernel's lists
// cannot be read. alone means that the namespace belongs only to the user. Then sockets without a descriptor count too:
// those closed before all data was sent, or not accepted yet. Before Linux 6.17 these appear as root's.
func SocketMemory(pid, uid int, alone bool) (total int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/net/"
	counts, err := os.ReadFile(dir + "sockstat")
	if err != nil {
		return 0
	}
	for _, protocol := range []string{"tcp", "udp"} {
		// sockstat counts the memory of the whole machine, in pages.
		_, rest, _ := strings.Cut(string(counts), strings.ToUpper(protocol)+": inuse ")
		rest, _, _ = strings.Cut(rest, "\n")
		_, pages, _ := strings.Cut(rest, " mem ")
		if n, err := strconv.Atoi(pages); err == nil && n*os.Getpagesize() >= littleMemory {
			list, _ := os.ReadFile(dir + protocol) //nolint:gosec // a path in /proc
			total += sumQueues(list, uid, alone)
		}
	}
	return total
}

// sumQueues adds up the queues of a user's sockets in a list of the kernel. If alone, sockets without a descriptor
// count.
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
