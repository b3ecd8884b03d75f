package jail

import (
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
)

// listEvery is how often the processes of a slot are listed while it is measured. Only code that has escaped from Deno
// and the filter could have more than one.
const listEvery = 50 * time.Millisecond

// socketsEvery is how often the sockets of a slot are measured.
const socketsEvery = 200 * time.Millisecond

// memoryMeter adds up the memory of all processes of a slot and of its TCP sockets. The seccomp filter keeps code from
// starting processes and from using memory that no process holds; the meter counts other processes all the same.
type memoryMeter struct {
	// list lists the slot's processes, the interpreter among them.
	list func() []int
	// uid is the user of the slot, as seen from sandboxd's user namespace.
	uid int
	// alone means that the slot has a network namespace of its own.
	alone bool

	mu      sync.Mutex
	others  []int
	sockets int64 // bytes queued in them
	counted time.Time
	newest  int // the last pid that the kernel had given out when the processes were listed
	listed  time.Time
}

// total is the memory of the interpreter, its child processes and its sockets, in bytes.
func (m *memoryMeter) total(main int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.listed.IsZero() { // the first listing waits, so that short runs do not pay for it
		m.listed, m.counted = now, now
	}
	if now.Sub(m.listed) >= listEvery {
		m.listed = now
		m.listOthers(main)
	}
	//defence:memory-sum
	if now.Sub(m.counted) >= socketsEvery {
		m.counted, m.sockets = now, proc.SocketMemory(main, m.uid, m.alone)
	}
	total := proc.Memory(main) + m.sockets
	for _, pid := range m.others {
		total += proc.Memory(pid)
	}
	return total
}

// listOthers lists the slot's other processes, unless no process was started on the machine since the last time.
func (m *memoryMeter) listOthers(main int) {
	newest, err := proc.LastPID()
	//defence:memory-sum permits
	if err == nil && newest == m.newest {
		return
	}
	m.newest, m.others = newest, m.others[:0]
	for _, pid := range m.list() {
		if pid != main {
			m.others = append(m.others, pid)
		}
	}
}
