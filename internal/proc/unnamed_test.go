package proc

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestHeldFiles: a removed file counts also if only a mapping, or a descriptor in an unread message, keeps it alive. A
// mapped program that an update removed does not count.
// Promise: file-limits
func TestHeldFiles(t *testing.T) {
	dir := t.TempDir()
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(dir, &st))
	count := func() int64 { return RemovedBytes([]int{os.Getpid()}, st.Dev) }
	// open returns a removed file of a page.
	open := func() *os.File {
		f, err := os.CreateTemp(dir, "")
		testkit.Must(t, err)
		_, err = f.Write(make([]byte, os.Getpagesize()))
		testkit.Must(t, err)
		testkit.Must(t, os.Remove(f.Name()))
		return f
	}
	f := open()
	if n := count(); n < int64(os.Getpagesize()) || n >= unmeasured {
		t.Errorf("an open file counts %d bytes", n)
	}
	testkit.Must(t, f.Close())
	if n := count(); n != 0 {
		t.Fatalf("%d bytes without a file", n)
	}
	for _, row := range []struct {
		name   string
		rights int
	}{{"a mapped file", unix.PROT_READ}, {"a mapped program", unix.PROT_READ | unix.PROT_EXEC}} {
		f := open()
		mapped, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), row.rights, unix.MAP_PRIVATE)
		testkit.Must(t, err)
		if n := count(); n < int64(os.Getpagesize()) || n >= unmeasured {
			t.Errorf("%s that is open counts %d bytes", row.name, n)
		}
		testkit.Must(t, f.Close())
		if n := count(); n != unmeasured {
			t.Errorf("%s counts %d bytes", row.name, n)
		}
		testkit.Must(t, unix.Munmap(mapped))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	f = open()
	testkit.Must(t, unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0))
	testkit.Must(t, f.Close())
	if n := count(); n != unmeasured {
		t.Errorf("a file in a message counts %d bytes", n)
	}
	testkit.Must(t, unix.Close(pair[0]))
	testkit.Must(t, unix.Close(pair[1]))
	if n := count(); n != 0 {
		t.Errorf("%d bytes at the end", n)
	}
}

// TestUpdatedPrograms: programs and libraries that an update removed count as nothing, and a file counts once.
func TestUpdatedPrograms(t *testing.T) {
	const maps = "7f00-7f10 r-xp 00000000 08:01 11 /usr/bin/deno (deleted)\n" +
		"7f10-7f20 r-xp 00000000 08:01 12 /lib/x86_64-linux-gnu/libc.so.6 (deleted)\n" +
		"7f20-7f30 rw-p 00000000 08:01 13 /skills/usr/bin/a (deleted)\n" +
		"7f30-7f40 r-xp 00001000 08:01 13 /skills/usr/bin/a (deleted)\n" +
		"7f40-7f50 rw-p 00000000 08:01 14 /skills/kept\n" +
		"7f50-7f60 rw-p 00000000 08:02 15 /skills/elsewhere (deleted)\n"
	if n := countMapped([]byte(maps), unix.Mkdev(8, 1), map[uint64]bool{}); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
}
