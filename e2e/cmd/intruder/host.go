package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func identity(task) (bool, string) {
	if os.Getuid() == 0 || os.Getgid() == 0 {
		return false, "root"
	}
	// Not from /proc: code has none.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false, "capget: " + err.Error()
	}
	for _, s := range sets {
		if s.Effective|s.Permitted|s.Inheritable != 0 {
			return false, fmt.Sprintf("capabilities %+v", sets)
		}
	}
	for c := uintptr(0); c < 64; c++ {
		if set, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0, 0); errno == 0 && set != 0 {
			return false, fmt.Sprintf("ambient capability %d", c)
		}
	}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		if g == 0 {
			return false, fmt.Sprint("groups ", groups)
		}
	}
	return true, fmt.Sprintf("uid %d gid %d, no capability", os.Getuid(), os.Getgid())
}

func status(task) (bool, string) {
	nnp, _, _ := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0)
	mode, _, _ := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_SECCOMP, 0, 0, 0, 0, 0)
	return nnp == 1 && mode == 2, fmt.Sprint("NoNewPrivs ", nnp, " Seccomp ", mode)
}

// foreign opens files with facts about the host or the container: mount paths, names, hardware, other processes. It
// also tries ways to them that need no fixed path.
func foreign(task) (bool, string) {
	paths := []string{
		"/proc", "/proc/mounts", "/proc/version", "/proc/cpuinfo", "/proc/meminfo", "/proc/cmdline", "/proc/modules", "/proc/partitions", "/proc/uptime", "/proc/keys", "/proc/loadavg",
		"/proc/stat", "/proc/net/tcp", "/proc/net/route", "/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/proc/config.gz", "/proc/bus/pci/devices", "/proc/thread-self/status",
		"/sys", "/sys/class/net", "/sys/fs/cgroup/cgroup.controllers", "/sys/kernel/notes", "/sys/class/dmi/id/product_name", "/sys/devices/virtual/dmi/id/bios_version",
		"/etc", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/os-release", "/etc/machine-id", "/etc/mtab", "/etc/localtime", "/etc/ssl/certs", "/etc/ld.so.cache",
		"/dev/zero", "/dev/full", "/dev/tty", "/dev/shm", "/dev/mqueue", "/dev/fd", "/run", "/var", "/root", "/home", "/.dockerenv", "/var/lib/sandboxd", "/run/net/owner", "/mnt", "/boot",
	}
	own := strconv.Itoa(os.Getpid())
	for _, pid := range []string{"self", "1", "2", own} {
		for _, name := range []string{"mountinfo", "mounts", "environ", "cmdline", "cgroup", "maps", "status", "stat", "statm", "comm", "fdinfo/0", "task/" + own + "/mountinfo", "root/etc/passwd", "cwd", "ns", "net/dev", "oom_score_adj"} {
			if name == "cwd" && (pid == "self" || pid == own) {
				continue // /tmp, which may have another run's files
			}
			paths = append(paths, "/proc/"+pid+"/"+name)
		}
	}
	var open []string
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		names, listed := f.Readdirnames(-1)
		n, _ := f.Read(make([]byte, 64))
		_ = f.Close()
		if n > 0 || listed == nil && len(names) > 0 && !harmless(path, names) {
			open = append(open, path)
		}
	}
	return len(open) == 0, fmt.Sprintf("%d tried, open %v", len(paths), open)
}

// harmless reports whether a directory of an embedded sandbox contains only the names that were put there, which are
// the same on every machine.
func harmless(path string, names []string) bool {
	for _, n := range names {
		if path+"/"+n == os.Getenv("HOME") { // of an MCP server
			continue
		}
		switch path + "/" + n {
		case "/proc/self", "/etc/codeforge", "/etc/resolv.conf", "/dev/null", "/dev/random", "/dev/urandom":
		default:
			return false
		}
	}
	return true
}

// sockets searches the file system for sockets and connects to each, and to the known abstract ones.
func sockets(task) (bool, string) {
	var open []string
	n := 0
	connect := func(path string) {
		n++
		for _, network := range []string{"unix", "unixgram"} {
			if c, err := net.DialTimeout(network, path, time.Second); err == nil {
				_ = c.Close()
				open = append(open, path)
			}
		}
	}
	walk(func(path string, d fs.DirEntry) {
		if d.Type()&fs.ModeSocket != 0 {
			connect(path)
		}
	})
	text, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 8 && strings.HasPrefix(f[7], "@") {
			connect(f[7])
		}
	}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/sandboxd/sandboxd.sock", "/run/codeforge/control/proxy.sock", "/run/codeforge/credentials/credentials.sock", "/dev/shm/run/control.sock", "/dev/shm/logins/credentials.sock", "/dev/shm/run/sandboxd.sock"} {
		connect(path)
	}
	return len(open) == 0, fmt.Sprintf("%d tried, open %v", n, open)
}

// walk visits the visible file system without /proc and /sys.
func walk(visit func(string, fs.DirEntry)) {
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if path == "/proc" || path == "/sys" {
			return filepath.SkipDir
		}
		if err == nil {
			visit(path, d)
		}
		return nil
	})
}

// processes looks for the processes of others and reads what it can of them.
func processes(task) (bool, string) {
	var bad []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if pid == os.Getpid() {
			continue
		}
		for _, name := range []string{"environ", "mem", "maps", "root/etc/shadow", "fd/0"} {
			path := filepath.Join(d, name)
			data := make([]byte, 100)
			f, err := os.Open(path)
			if err != nil {
				continue
			}
			// The init of this sandbox is bubblewrap, with the same user and an environment as empty as ours.
			if n, _ := f.Read(data); n > 0 && pid > 2 {
				bad = append(bad, path)
			}
			_ = f.Close()
		}
		if pid > 2 && syscall.Kill(pid, 0) == nil {
			bad = append(bad, fmt.Sprintf("may signal %d", pid))
		}
	}
	return len(bad) == 0, fmt.Sprintf("%d seen %v", len(dirs), bad)
}

// files searches every readable file for secrets.
func files(t task) (bool, string) {
	n, bad, buf := 0, "", make([]byte, 4<<20)
	look := func(path string) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		k, _ := io.ReadFull(f, buf)
		data := buf[:k]
		n++
		for _, s := range t.Secrets {
			if bytes.Contains(data, []byte(s)) {
				bad = path
			}
		}
		if bytes.Contains(data, []byte("PRIVATE KEY-----")) && !strings.HasPrefix(path, "/usr") {
			bad = path + " (a private key)"
		}
	}
	walk(func(path string, d fs.DirEntry) {
		info, err := d.Info()
		if err == nil && d.Type().IsRegular() && info.Size() < 64<<20 && path != os.Args[len(os.Args)-1] {
			look(path)
		}
	})
	more, _ := filepath.Glob("/proc/*/environ")
	for _, path := range append(more, "/proc/keys", "/proc/cmdline", "/proc/self/mountinfo") {
		look(path)
	}
	for _, s := range t.Secrets {
		if strings.Contains(strings.Join(os.Environ(), "\n"), s) {
			bad = "the environment"
		}
	}
	return bad == "", fmt.Sprintf("%d files read %s", n, bad)
}

// writable lists writable directories other than /tmp, /skills and /out.
func writable(task) (bool, string) {
	var bad []string
	walk(func(path string, d fs.DirEntry) {
		if !d.IsDir() || slices.Contains([]string{"tmp", "skills", "out"}, strings.Split(path, "/")[1]) {
			return
		}
		if f, err := os.CreateTemp(path, "intruder"); err == nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			bad = append(bad, path)
		}
	})
	// The interpreter's own cache is writable, and removed with the run.
	cache, home := os.Getenv("DENO_DIR"), os.Getenv("HOME")
	kept := bad[:0]
	for _, p := range bad {
		if (cache == "" || p != cache && !strings.HasPrefix(p, cache+"/")) && p != home && !strings.HasPrefix(p, home+"/") {
			kept = append(kept, p)
		}
	}
	for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/sys/net/ipv4/ip_forward", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/kmsg"} {
		if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			kept = append(kept, p)
		}
	}
	return len(kept) == 0, fmt.Sprintf("writable %v", kept)
}

// executable copies this program to a directory that code may write to, and starts it.
func executable(dir string) func(task) (bool, string) {
	return func(task) (bool, string) {
		data, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return true, "cannot read itself"
		}
		path := filepath.Join(dir, "intruder-copy")
		if err := os.WriteFile(path, data, 0o700); err != nil { //nolint:gosec // meant to be executable
			return true, "cannot copy itself"
		}
		defer os.Remove(path)
		err = exec.Command(path, "--version").Run() //nolint:noctx,gosec // ends at once
		return err != nil, fmt.Sprint("started: ", err)
	}
}

// limits tries to raise its own limits.
func limits(task) (bool, string) {
	var bad []string
	for name, which := range map[string]int{"processes": unix.RLIMIT_NPROC, "files": unix.RLIMIT_NOFILE, "core": unix.RLIMIT_CORE, "file size": unix.RLIMIT_FSIZE} {
		var l unix.Rlimit
		if unix.Getrlimit(which, &l) != nil || l.Max == unix.RLIM_INFINITY {
			bad = append(bad, name+" is not limited")
			continue
		}
		if unix.Setrlimit(which, &unix.Rlimit{Cur: l.Max + 1, Max: l.Max + 1}) == nil {
			bad = append(bad, name+" can be raised")
		}
		if which == unix.RLIMIT_CORE && l.Max != 0 {
			bad = append(bad, "core files are written")
		}
	}
	return len(bad) == 0, strings.Join(bad, ", ")
}

// forks starts children until that fails, and leaves them running.
func forks(task) (bool, string) {
	n := 0
	for ; n < 20000; n++ {
		if _, err := syscall.ForkExec(program(), []string{"intruder", "sleep"}, &syscall.ProcAttr{Files: []uintptr{}, Sys: &syscall.SysProcAttr{Setsid: true}}); err != nil {
			return true, fmt.Sprintf("%d children, then %v", n, err)
		}
	}
	return false, "20,000 children"
}

// stay leaves a child in its own session that would outlive the run.
func stay(t task) (bool, string) {
	_, err := syscall.ForkExec("/proc/self/exe", []string{"intruder", "linger", t.Trial}, &syscall.ProcAttr{Files: []uintptr{}, Sys: &syscall.SysProcAttr{Setsid: true}})
	return true, fmt.Sprint("left a child: ", err)
}

// hang closes its streams and never ends.
func hang(task) (bool, string) {
	for fd := range 3 {
		_ = unix.Close(fd)
	}
	time.Sleep(10 * time.Minute)
	return false, "still there"
}

// planted makes a skill that is not a regular file, to attack whoever opens it.
const planted = "/skills/planted.ts"

func plant(task) (bool, string) {
	err := os.Symlink("/proc/self/status", planted)
	return err == nil, fmt.Sprint("link: ", err)
}

func uproot(task) (bool, string) {
	err := os.Remove(planted)
	return err == nil, fmt.Sprint("removed: ", err)
}
