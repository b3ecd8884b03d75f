package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// fewSockets is how many TCP or UDP sockets cannot hold much, whatever is in them: their list, which takes a
// millisecond, is not read for so few.
const fewSockets = 32

// SocketMemory is what a user's TCP and UDP sockets in the network namespace of pid hold that was not read or not yet
// taken by the other end, in bytes; 0 when it cannot be told. alone means that the namespace is the user's: then
// sockets without a descriptor count too, which before Linux 6.17 appear as root's. They are those that were closed
// before all was sent, and those that were not accepted.
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
			list, _ := os.ReadFile(dir + protocol) //nolint:gosec // of /proc
			total += queued(list, uid, alone)
		}
	}
	return total
}

// queued sums up the queues of a user's sockets in a list of the kernel, and of those without a descriptor if alone.
func queued(list []byte, uid int, alone bool) (total int64) {
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line) // sl local rem st tx:rx tr:tm retrnsmt uid timeout inode ...
		if len(f) < 10 || string(f[7]) != strconv.Itoa(uid) && !(alone && string(f[9]) == "0") {
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
