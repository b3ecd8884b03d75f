// Package wake measures what it costs here to wake a thread that waits. A run crosses some dozens of threads and a proxied
// request some ten, so where that is dear, as in many virtual machines, it is most of what they cost.
package wake

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// rounds is how often a byte goes there and back.
const rounds = 2000

// Cost is the time from one thread's write until another that waits for it has read: on the same processor, and on two.
// It is zero for two where there is only one.
func Cost() (same, two time.Duration, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, 0, err
	}
	var cpus []int
	for n := 0; len(cpus) < 2 && n < 1024; n++ {
		if allowed.IsSet(n) {
			cpus = append(cpus, n)
		}
	}
	if len(cpus) == 0 {
		return 0, 0, errors.New("no processor to run on")
	}
	if same, err = between(cpus[0], cpus[0]); err != nil || len(cpus) < 2 {
		return same, 0, err
	}
	two, err = between(cpus[0], cpus[1])
	return same, two, err
}

// between passes a byte to and fro between threads on two processors.
func between(a, b int) (time.Duration, error) {
	var there, back [2]int
	if err := errors.Join(unix.Pipe2(there[:], unix.O_CLOEXEC), unix.Pipe2(back[:], unix.O_CLOEXEC)); err != nil {
		return 0, err
	}
	echoed := make(chan error, 1)
	go func() { echoed <- pass(b, there[0], back[1], false) }()
	start := time.Now()
	err := pass(a, back[0], there[1], true)
	took := time.Since(start)
	err = errors.Join(err, <-echoed, unix.Close(there[0]), unix.Close(back[0]))
	return took / (2 * rounds), err
}

// pass reads and writes in turn on one processor, on a thread of its own, and closes the end it writes to.
func pass(cpu, from, to int, first bool) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which is bound now, ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu)
		err := unix.SchedSetaffinity(0, &set)
		buf := make([]byte, 1)
		for n := 0; n < rounds && err == nil; n++ {
			if first {
				if _, err = unix.Write(to, buf); err != nil {
					break
				}
			}
			if n, e := unix.Read(from, buf); e != nil || n == 0 {
				err = errors.Join(e, errors.New("the other end is gone"))
				break
			}
			if !first {
				_, err = unix.Write(to, buf)
			}
		}
		done <- errors.Join(err, unix.Close(to))
	}()
	return <-done
}
