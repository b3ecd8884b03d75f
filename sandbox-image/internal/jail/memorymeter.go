package jail

import (
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
)

// listEvery is the interval at which a measurement lists the slot's processes. Only code that escaped from Deno and the
// filter could have more than one.
const listEvery = 50 * time.Millisecond

// socketsEvery is the interval at which a slot's sockets are measured.
const socketsEvery = 200 * time.Millisecond

// memoryMeter adds up the memory of all processes of a slot and of its TCP sockets. The seccomp filter keeps code from
// starting processes and from using memory outside a process. The meter counts other processes as a second defence.
type memoryMeter struct {
	// list returns the slot's processes, including the interpreter.
	list func() []int
	// uid is the slot's user as seen from sandboxd's user namespace.
	uid int
	// alone means that the slot has a separate network namespace.
	alone bool

	mu      sync.Mutex
	others  []int
	sockets int64 // bytes queued in them
	counted time.Time
	newest  int // the kernel's latest pid when the processes were listed
	listed  time.Time
}

// totalMemory returns the memory of the interpreter, its child processes and its sockets, in bytes.
func (m *memoryMeter) totalMemory(main int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.listed.IsZero() { // the first listing waits, because it would slow short runs
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
	total := proc.MemoryOf(main) + m.sockets
	for _, pid := range m.others {
		total += proc.MemoryOf(pid)
	}
	return total
}

// listOthers lists the slot's other processes, unless the machine has started no process since the last time.
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
