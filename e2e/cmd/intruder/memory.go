package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Every bomb tries to allocate haul bytes, far beyond a run's limit, and holds them for a while so that a measurement
// from outside can see them.
const (
	haul  = 2560 << 20
	piece = 128 << 20 // no file may be larger
	held  = 2 * time.Second
)

// bombs allocate memory in different ways. Each is an attempt of its own.
func bombs() []attempt {
	var all []attempt
	for name, take := range map[string]func() (int, error){
		"of its own":                 ownPages,
		"in children":                children,
		"in memfds":                  memfds(false),
		"in memfds on their way":     memfds(true),
		"in shared pages given back": shared(-1),
		"in pages of /dev/zero":      zero,
		"in huge pages":              hugePages,
		"in page tables":             pageTables,
		"in System V segments":       segments,
		"in files without a name":    nameless,
		"in attributes of files":     attributes,
		"in pipes":                   pipes,
		"in pairs of sockets":        pairs,
		"in sockets to themselves":   selfish,
		"in sockets of many tables":  tables,
	} {
		all = append(all, attempt{name: "memory bomb " + name, asked: true, try: func(task) (bool, string) {
			n, err := take()
			if n > haul/5 { // half the limit of a run
				time.Sleep(held)
			}
			return n < haul/2, fmt.Sprintf("%d MiB, then %v", n>>20, err)
		}})
	}
	return all
}

// touch writes to every page.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func ownPages() (int, error) {
	for n := 0; n < haul; n += piece {
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return n, err
		}
		touch(b)
	}
	return haul, nil
}

// children starts four processes that allocate a quarter each.
func children() (int, error) {
	for i := range 4 {
		_, err := syscall.ForkExec("/proc/self/exe", []string{"intruder", "weigh", strconv.Itoa(haul / 4)}, &syscall.ProcAttr{Files: []uintptr{}})
		if err != nil {
			return i * haul / 4, err
		}
	}
	time.Sleep(10 * time.Second)
	return haul, nil
}

// weigh is a child of children.
func weigh(bytes string) {
	n, _ := strconv.Atoi(bytes)
	if b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err == nil {
		touch(b)
	}
	time.Sleep(10 * time.Minute)
}

// memfds fills anonymous files. Descriptors in flight are in no descriptor table, but in a socket.
func memfds(away bool) func() (int, error) {
	return func() (int, error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return 0, err
		}
		for n := 0; n < haul; n += piece {
			fd, err := unix.MemfdCreate("bomb", 0)
			if err != nil {
				return n, err
			}
			if err := unix.Fallocate(fd, 0, 0, piece-4096); err != nil {
				return n, err
			}
			if !away {
				continue
			}
			if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
				return n, err
			}
			_ = unix.Close(fd)
		}
		return haul, nil
	}
}

// shared fills shared memory and gives the pages up with madvise: they stay allocated, and no process's size shows
// them.
func shared(fd int) func() (int, error) {
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	return func() (int, error) {
		for n := 0; n < haul; n += piece {
			b, err := unix.Mmap(fd, 0, piece, unix.PROT_READ|unix.PROT_WRITE, flags)
			if err != nil {
				return n, err
			}
			touch(b)
			if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
				return n, err
			}
		}
		return haul, nil
	}
}

func zero() (int, error) {
	fd, err := unix.Open("/dev/zero", unix.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	return shared(fd)()
}

func hugePages() (int, error) {
	for n := 0; n < haul; n += piece {
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
		if err != nil {
			return n, err
		}
		touch(b)
	}
	return haul, nil
}

// pageTables reads a byte in every 2 MiB of unallocated memory, so that only page tables are allocated.
func pageTables() (int, error) {
	const room, each = 16 << 30, 2 << 20
	for n := 0; n < haul; n += room / each * 4096 {
		b, err := unix.Mmap(-1, 0, room, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return n, err
		}
		_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
		for i := 0; i < room; i += each {
			if b[i] != 0 {
				return n, nil
			}
		}
	}
	return haul, nil
}

func segments() (int, error) {
	for n := 0; n < haul; n += piece {
		id, err := unix.SysvShmGet(0, piece, 0o1600)
		if err != nil {
			return n, err
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return n, err
		}
		touch(b)
	}
	return haul, nil
}

// nameless fills files that it has unlinked, in every memory file system where it can create one.
func nameless() (total int, last error) {
	const tmpfs = 0x01021994
	for _, dir := range []string{"/tmp", os.Getenv("DENO_DIR"), "/dev/shm", "/dev", "/run", "/var/tmp", "/code", "/runs", "/skills"} {
		var st unix.Statfs_t
		if dir == "" || unix.Statfs(dir, &st) != nil || st.Type != tmpfs {
			continue
		}
		for total < haul {
			path := filepath.Join(dir, "bomb")
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
			if err != nil {
				last = err
				break
			}
			_ = unix.Unlink(path)
			data := make([]byte, 1<<20)
			for k := 0; k < piece; k += len(data) {
				n, err := unix.Write(fd, data)
				total += n
				if last = err; err != nil {
					break
				}
			}
			if last != nil {
				break
			}
		}
	}
	return total, last
}

// attributes gives files in memory attributes of 64 KiB each, which no size of theirs shows.
func attributes() (total int, last error) {
	value := make([]byte, 64<<10)
	for _, dir := range []string{os.Getenv("DENO_DIR"), "/tmp", "/skills"} {
		path := filepath.Join(dir, "attributes")
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			last = err
			continue
		}
		_ = unix.Unlink(path)
		for i := 0; total < haul; i++ {
			if last = unix.Fsetxattr(fd, "user.bomb"+strconv.Itoa(i), value, 0); last != nil {
				break
			}
			total += len(value)
		}
	} // they are held open, as those of the others are
	return total, last
}

// fill writes to a descriptor until the write fails.
func fill(fd int) (total int) {
	_ = unix.SetNonblock(fd, true)
	data := make([]byte, 1<<20)
	for {
		n, err := unix.Write(fd, data)
		if err != nil || n <= 0 {
			return total
		}
		total += n
	}
}

func pipes() (total int, err error) {
	for total < haul {
		var p [2]int
		if err = unix.Pipe(p[:]); err != nil {
			return total, err
		}
		_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
		total += fill(p[1])
	}
	return total, nil
}

func pairs() (total int, err error) {
	for total < haul {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return total, err
		}
		for i := range p {
			_ = unix.SetsockoptInt(p[i], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<30)
			total += fill(p[i])
		}
	}
	return total, nil
}

// tables fills socket pairs on threads that each unshare their descriptor table, which has room for as many again.
func tables() (total int, err error) {
	type filled struct {
		n   int
		err error
	}
	for total < haul {
		done := make(chan filled)
		go func() {
			runtime.LockOSThread()
			const none = ^uintptr(0) >> 33
			if _, _, errno := unix.RawSyscall(unix.SYS_CLOSE_RANGE, none, none, unix.CLOSE_RANGE_UNSHARE); errno != 0 {
				done <- filled{0, errno}
				return
			}
			n, err := pairs()
			done <- filled{n, err}
			time.Sleep(time.Minute)
		}()
		f := <-done
		total, err = total+f.n, f.err
		if f.n == 0 {
			return total, err
		}
	}
	return total, err
}

// selfish connects sockets to themselves and fills their buffers.
func selfish() (total int, err error) {
	for port := 20000; total < haul && port < 60000; port++ {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return total, err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<30)
		at := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Bind(fd, at); err != nil {
			if strings.Contains(err.Error(), "in use") {
				_ = unix.Close(fd)
				continue
			}
			return total, err
		}
		if err := unix.Connect(fd, at); err != nil {
			return total, err
		}
		total += fill(fd)
	}
	return total, nil
}
