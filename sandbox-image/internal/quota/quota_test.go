package quota

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// tmpfs makes a file system of 16 MiB that is mounted nowhere, and returns a path to it that is valid during the test.
func tmpfs(t *testing.T, files int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "a tmpfs of its own, and files of other users, need root")
	}
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fsfd)
	for _, kv := range [][2]string{{"size", "16m"}, {"mode", "1777"}, {"nr_inodes", fmt.Sprint(files)}} {
		if err := unix.FsconfigSetString(fsfd, kv[0], kv[1]); err != nil {
			t.Fatal(kv, err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

// meter watches dir: 8 MiB and 100 files a run.
func meter(t *testing.T, dir string, change func(*Config)) *Meter {
	t.Helper()
	cfg := Config{
		Dirs:     []SharedDir{{Path: dir, Name: "/tmp", Bytes: 8 << 20, Files: 100, MakeRoom: true}},
		OwnUsers: true, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// write makes a file of a slot, in directories of the slot.
func write(t *testing.T, id slot.ID, size int, elem ...string) {
	t.Helper()
	for i := 2; i < len(elem); i++ {
		dir := filepath.Join(elem[:i]...)
		if os.Mkdir(dir, 0o770) == nil {
			testkit.Must(t, os.Chown(dir, id.UID(), slot.GroupID))
		}
	}
	name := filepath.Join(elem...)
	testkit.Must(t, os.WriteFile(name, make([]byte, size), 0o660))
	testkit.Must(t, os.Chown(name, id.UID(), slot.GroupID))
	tick()
}

// tick waits for the kernel's next tick, so that the next file is younger.
func tick() {
	for now := fileTime(); fileTime().Equal(now); {
		time.Sleep(time.Millisecond)
	}
}

// names lists what is in a directory, directories with a slash.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	testkit.Must(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if name == "." {
			return err
		}
		if d.IsDir() {
			name += "/"
		}
		found = append(found, name)
		return err
	}))
	return found
}

func same(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

// places are a directory that is a file system of its own, and one that is not.
func places(t *testing.T, f func(t *testing.T, dir string)) {
	t.Run("own file system", func(t *testing.T) { f(t, tmpfs(t, 1000)) })
	t.Run("shared file system", func(t *testing.T) { tmpfs(t, 1000); f(t, t.TempDir()) })
}

func TestOver(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		m := meter(t, dir, nil)
		write(t, 1, 5<<20, dir, "older")
		write(t, 2, 1<<20, dir, "others")
		tick()
		r := m.BeginRun(1)
		write(t, 1, 4<<20, dir, "a")
		write(t, 2, 1<<20, dir, "beside")
		if reason, detail := r.FindExcess(none); reason != "" {
			t.Errorf("within its bound: %s %s", reason, detail)
		}
		write(t, 1, 4<<20+1, dir, "deep", "er", "b")
		if reason, detail := r.FindExcess(none); reason != sandboxapi.OutputLimit || !strings.Contains(detail, "8 MiB to /tmp") || !strings.Contains(detail, "removed") {
			t.Errorf("%s %q", reason, detail)
		}
		testkit.Must(t, r.EndAndClean())
		same(t, dir, "beside", "older", "others")
	})
}

func TestTooManyFiles(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		m := meter(t, dir, nil)
		r := m.BeginRun(3)
		for i := range 101 {
			name := filepath.Join(dir, fmt.Sprint(i))
			testkit.Must(t, os.WriteFile(name, nil, 0o600))
			testkit.Must(t, os.Chown(name, slot.ID(3).UID(), slot.GroupID))
		}
		if reason, detail := r.FindExcess(none); reason != sandboxapi.OutputLimit || !strings.Contains(detail, "100 files in /tmp") {
			t.Errorf("%s %q", reason, detail)
		}
		testkit.Must(t, r.EndAndClean())
		same(t, dir)
	})
}

// Growth of an older file counts, and hard links count once.
func TestGrown(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		m := meter(t, dir, nil)
		write(t, 1, 5<<20, dir, "older")
		tick()
		r := m.BeginRun(1)
		write(t, 1, 0, dir, "touched")
		testkit.Must(t, os.Link(filepath.Join(dir, "older"), filepath.Join(dir, "link")))
		if reason, _ := r.FindExcess(none); reason != "" {
			t.Error("a link was counted")
		}
		write(t, 1, 14<<20, dir, "older")
		if reason, _ := r.FindExcess(none); reason != sandboxapi.OutputLimit {
			t.Error("growth was not counted")
		}
		testkit.Must(t, r.EndAndClean())
	})
}

// What a run writes counts whatever time it gives its files, and below directories that nobody looks into.
// Promise: file-limits
func TestHidden(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		m := meter(t, dir, nil)
		write(t, 1, 0, dir, "older")
		tick()
		r := m.BeginRun(1)
		write(t, 1, 9<<20, dir, "older")
		testkit.Must(t, os.Chtimes(filepath.Join(dir, "older"), time.Unix(1, 0), time.Unix(1, 0)))
		if reason, _ := r.FindExcess(none); reason != sandboxapi.OutputLimit {
			t.Error("a file that is said to be old was not counted")
		}
		testkit.Must(t, r.EndAndClean())
		_ = os.Remove(filepath.Join(dir, "older")) // in a small file system it had to give way
		r = m.BeginRun(1)
		write(t, 1, 9<<20, append(append([]string{dir}, deep()...), "big")...)
		if reason, detail := r.FindExcess(Probe{Unnamed: none.Unnamed, Written: hidden}); reason != sandboxapi.OutputLimit || !strings.Contains(detail, "64 deep") {
			t.Errorf("deep down: %s %q", reason, detail)
		}
		testkit.Must(t, r.EndAndClean())
		same(t, dir)
	})
}

// deep are the names of more directories, each in the one before, than are looked into.
func deep() []string { return strings.Split(strings.Repeat("d ", maxDepth+6)+"d", " ") }

func hidden(string, time.Time, int64) FileCount { return FileCount{Hidden: true} }

// A directory that its owner has closed is counted as its owner, what is new in it too if the directory is old.
// Promise: file-limits
func TestClosed(t *testing.T) {
	tmpfs(t, 10) // needs root
	for _, size := range []int{5 << 20, 9 << 20} {
		dir := t.TempDir()
		testkit.Must(t, os.Chmod(dir, 0o770)) //nolint:gosec // as /skills
		testkit.Must(t, os.Chown(dir, -1, slot.GroupID))
		m := meter(t, dir, nil)
		write(t, 1, 1<<20, dir, "closed", "old")
		tick()
		r := m.BeginRun(1)
		write(t, 1, size, dir, "closed", "new")
		testkit.Must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
		asked := ""
		asContainer(t, func(privileged func(func())) {
			asOwner := func(of string, since time.Time, enough int64) (c FileCount) {
				asked = of
				privileged(func() {
					root, err := os.OpenRoot(of)
					testkit.Must(t, err)
					defer root.Close()
					c = countWritten(root, r.ownsUID, since, enough, true)
				})
				return c
			}
			reason, detail := r.FindExcess(Probe{Unnamed: none.Unnamed, Written: asOwner})
			if over := reason == sandboxapi.OutputLimit; over != (size > 8<<20) || asked != dir {
				t.Errorf("%d bytes: %s %q, asked %q", size, reason, detail, asked)
			}
		})
		testkit.Must(t, os.Chmod(filepath.Join(dir, "closed"), 0o700)) //nolint:gosec // so that it can be removed
	}
}

// Directories that nobody looks into are removed like others when there is no room.
// Promise: file-limits
func TestMakeRoomDeepDown(t *testing.T) {
	dir := tmpfs(t, 1000)
	m := meter(t, dir, nil)
	for id := range slot.ID(3) {
		r := m.BeginRun(id)
		write(t, id, 7<<20, append(append([]string{dir, fmt.Sprint(id)}, deep()...), "big")...)
		testkit.Must(t, r.EndAndClean())
	}
	if m.isCrowded(0) {
		t.Error("there is no room")
	}
	_, err := os.Stat(filepath.Join(append(append([]string{dir, "2"}, deep()...), "big")...))
	testkit.Must(t, err)
}

// A run is not charged for files that an earlier run left in its slot.
func TestFollows(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		m := meter(t, dir, nil)
		for i := range 5 {
			r := m.BeginRun(1)
			write(t, 1, 5<<20, dir, fmt.Sprint(i%2))
			if reason, detail := r.FindExcess(none); reason != "" {
				t.Fatalf("run %d: %s %s", i, reason, detail)
			}
			testkit.Must(t, r.EndAndClean())
			time.Sleep(20 * time.Millisecond) // an interpreter takes as long to start; files have the time of the last tick
		}
	})
}

// Where all slots share one user, a run is charged only while it is the only one.
func TestOneUser(t *testing.T) {
	dir := tmpfs(t, 1000)
	m := meter(t, dir, func(c *Config) { c.OwnUsers = false })
	a, b := m.BeginRun(0), m.BeginRun(1)
	write(t, 0, 9<<20, dir, "whose")
	if reason, _ := a.FindExcess(none); reason != "" {
		t.Error("ended for what may be another's")
	}
	testkit.Must(t, b.EndAndClean())
	same(t, dir, "whose") // it may belong to the other run
	if reason, _ := a.FindExcess(none); reason != sandboxapi.OutputLimit {
		t.Error("alone, and not ended")
	}
	testkit.Must(t, a.EndAndClean())
	same(t, dir)
}

// Runs that each stay within their bound leave the directory more than half full: the oldest files are removed, and no
// more than necessary.
func TestMakeRoom(t *testing.T) {
	dir := tmpfs(t, 1000)
	m := meter(t, dir, nil)
	leave := func(id slot.ID, name ...string) {
		r := m.BeginRun(id)
		write(t, id, 3<<20, append([]string{dir}, name...)...)
		if reason, _ := r.FindExcess(none); reason != "" {
			t.Fatal("within its bound")
		}
		testkit.Must(t, r.EndAndClean())
		time.Sleep(20 * time.Millisecond) // files of one tick of the kernel's clock are equally old
	}
	leave(0, "d", "oldest")
	leave(1, "old")
	same(t, dir, "d/", "d/oldest", "old")
	leave(2, "new") // 9 of 16 MiB
	same(t, dir, "d/", "new", "old")
	working := m.BeginRun(1)
	leave(3, "newer")
	same(t, dir, "d/", "newer", "old") // not the files of slot 1, which are older
	testkit.Must(t, working.EndAndClean())
	leave(4, "newest")
	same(t, dir, "d/", "newer", "newest")
}

// TestMakeRoomOfItsOwn: a run whose own files are removed at its end says so, and no other run does.
func TestMakeRoomOfItsOwn(t *testing.T) {
	dir := tmpfs(t, 1000)
	m := meter(t, dir, nil)
	working := m.BeginRun(1)
	write(t, 1, 7<<20, dir, "kept")
	r := m.BeginRun(2)
	write(t, 2, 2<<20, dir, "lost")
	testkit.Must(t, r.EndAndClean())
	const want = "1 files that the run wrote to /tmp were removed at its end, because the disk of /tmp was more than half full."
	if got := r.DescribeRemoved(); got != want {
		t.Errorf("got %q", got)
	}
	testkit.Must(t, working.EndAndClean())
	if got := working.DescribeRemoved(); got != "" {
		t.Errorf("the other run: %q", got)
	}
	same(t, dir, "kept")
	write(t, 3, 3<<20, dir, "before")
	next := m.BeginRun(4)
	testkit.Must(t, next.EndAndClean())
	if got := next.DescribeRemoved(); got != "" {
		t.Errorf("files of others: %q", got)
	}
}

// Empty files count too, and so do directories.
func TestMakeRoomForFiles(t *testing.T) {
	dir := tmpfs(t, 100)
	m := meter(t, dir, nil)
	r := m.BeginRun(0)
	for i := range 30 {
		write(t, 0, 0, dir, fmt.Sprintf("d%02d", i), "empty")
	}
	testkit.Must(t, r.EndAndClean())
	if left := len(names(t, dir)); left > 50 || left < 40 {
		t.Errorf("%d entries are left of 60; 100 are possible", left)
	}
	testkit.Must(t, m.BeginRun(1).EndAndClean())
}

// asContainer calls f with the rights that sandboxd has in its container: root in the slots' group, without the
// capabilities that bypass file modes. Inside f, privileged runs a function with all capabilities.
func asContainer(t *testing.T, f func(privileged func(func()))) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	testkit.Must(t, unix.Capget(&header, &all[0]))
	less := all
	less[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER
	set := func(to [2]unix.CapUserData) { testkit.Must(t, unix.Capset(&header, &to[0])) }
	defer set(all)
	group := func(count int, groups *uint32) { // of this thread
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(count), uintptr(unsafe.Pointer(groups)), 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	slots := uint32(slot.GroupID)
	group(1, &slots)
	defer group(0, nil)
	set(less)
	f(func(g func()) { set(all); g(); set(less) })
}

// A directory that its owner has closed is emptied as its owner. A directory that another run may be using stays.
func TestMakeRoomInClosedDirectories(t *testing.T) {
	for _, mode := range []os.FileMode{0, 0o500, 0o700} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := tmpfs(t, 1000)
			var wiped []string
			wipe := func(slot.ID, string, string) error { return nil }
			m := meter(t, dir, func(c *Config) {
				c.Wipe = func(id slot.ID, above, name string) error {
					wiped = append(wiped, fmt.Sprint(id, " ", name))
					return wipe(id, above, name)
				}
			})
			write(t, 5, 5<<20, dir, "open", "busy")
			testkit.Must(t, os.Chown(filepath.Join(dir, "open"), slot.ID(1).UID(), slot.GroupID))
			write(t, 1, 5<<20, dir, "closed", "file")
			testkit.Must(t, os.Chmod(filepath.Join(dir, "closed"), mode))
			tick()
			write(t, 2, 3<<20, dir, "newest")
			working := m.BeginRun(5)
			asContainer(t, func(privileged func(func())) {
				wipe = func(_ slot.ID, above, name string) (err error) {
					privileged(func() { err = os.Remove(filepath.Join(above, name, "file")) })
					return err
				}
				testkit.Must(t, m.BeginRun(1).EndAndClean())
			})
			testkit.Must(t, working.EndAndClean())
			same(t, dir, "newest", "open/", "open/busy")
			if !slices.Equal(wiped, []string{"1 closed"}) {
				t.Errorf("wiped %q", wiped)
			}
		})
	}
}

// In a directory on a shared file system, no old files are removed.
func TestNoRoomElsewhere(t *testing.T) {
	tmpfs(t, 10) // needs root
	dir := t.TempDir()
	m := meter(t, dir, nil)
	write(t, 0, 1<<20, dir, "kept")
	testkit.Must(t, m.BeginRun(1).EndAndClean())
	same(t, dir, "kept")
}

// none reports that no removed file is open, and nothing in closed directories.
var none = Probe{
	Unnamed: func(uint64) int64 { return 0 },
	Written: func(string, time.Time, int64) FileCount { return FileCount{} },
}

// Open files that a run has removed count too, even while others write; only the run's own files count.
// Promise: file-limits
func TestUnnamed(t *testing.T) {
	dir := tmpfs(t, 100)
	m, err := New(Config{Dirs: []SharedDir{{Path: dir, Name: "/skills", Bytes: 4 << 20, Files: 100}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ours := Probe{Unnamed: func(device uint64) int64 { return proc.RemovedBytes([]int{os.Getpid()}, device) }}
	run, other := m.BeginRun(1), m.BeginRun(2)
	f, err := os.Create(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if reason, why := run.FindExcess(ours); reason != "" {
		t.Errorf("within its bound: %s %s", reason, why)
	}
	if _, err := f.Write(make([]byte, 6<<20)); err != nil {
		t.Fatal(err)
	}
	if reason, why := other.FindExcess(none); reason != "" {
		t.Errorf("the other one has none: %s %s", reason, why)
	}
	if reason, why := run.FindExcess(ours); reason != sandboxapi.OutputLimit || !strings.Contains(why, "/skills that it had removed") {
		t.Errorf("got %q %q", reason, why)
	}
}
