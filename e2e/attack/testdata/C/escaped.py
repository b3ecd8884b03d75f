# What the kernel and the namespaces must stop by themselves: Python has no permissions of its own.

# expected: refused by the kernel
# judge: verdicts()

# name: control: what code may do
# expected: works
# note: Without which a sandbox that can do nothing would hold all of these.
def mine():
    with open("/tmp/TRIAL-mine", "w") as f:
        f.write("mine")
    with open("/tmp/TRIAL-mine") as f:
        text = f.read()
    os.remove("/tmp/TRIAL-mine")
    return text == "mine"


def thread():
    done = []
    t = threading.Thread(target=done.append, args=(1,))
    t.start()
    t.join()
    return done == [1]


for name, f in {
    "read": mine,
    "skills": lambda: os.listdir("/skills") is not None,
    "connect": lambda: socket.create_connection(("httpbin.test", 443)).close() is None,
    "fetch": lambda: urllib.request.urlopen("https://httpbin.test/x/ok?t=TRIAL").read() == b"ok",
    "thread": thread,
    "ctypes": lambda: libc.getpid() == os.getpid(),
    "random": lambda: len(os.urandom(8)) == 8,
}.items():
    worked = f()
    out(held=worked is True, seen=f"{name} {worked}")

# name: who am I
# expected: nobody, without a capability
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
syscall(125, 90, header, sets)
out(held=not any(sets), seen=f"capabilities {list(sets)}")
ambient = [c for c in range(64) if libc.prctl(47, 1, c, 0, 0) == 1]
out(held=not ambient, seen=f"ambient capabilities {ambient}")
out(held=0 not in (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()), seen=f"uid {os.getuid()} groups {os.getgroups()}")
out(held=libc.prctl(39, 0, 0, 0, 0) == 1, seen="no new privileges")
out(held=libc.prctl(21, 0, 0, 0, 0) == 2, seen="seccomp")

# name: another identity
def become(call, *args):
    try:
        return call(*args)
    except OSError as e:  # EINVAL: the user namespace has no such user
        raise PermissionError(errno.EPERM if e.errno == errno.EINVAL else e.errno, str(e)) from None


for name, f, args in [
    ("setuid", os.setuid, [0]), ("setgid", os.setgid, [0]), ("setresuid", os.setresuid, [0, 0, 0]), ("setgroups", os.setgroups, [[0]]),
    ("setuid of a neighbour", os.setuid, [os.getuid() + 1]), ("setgid of a neighbour", os.setgid, [os.getgid() + 1]),
]:
    attempt(name, lambda: become(f, *args), REFUSALS)

# name: namespaces and mounts
for name, f in {
    "a user namespace": lambda: syscall(272, 97, 0x10000000),
    "a network namespace": lambda: syscall(272, 97, 0x40000000),
    "a mount namespace": lambda: syscall(272, 97, 0x20000),
    "clone into a user namespace": lambda: syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": lambda: syscall(435, 435, (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17), 88),
    "setns": lambda: syscall(308, 268, 0, 0x40000000),
    "mount": lambda: syscall(165, 40, b"x\0", b"/tmp\0", b"tmpfs\0", 0, 0),
    "remount": lambda: syscall(165, 40, 0, b"/\0", 0, 32, 0),
    "umount": lambda: syscall(166, 39, b"/proc\0", 2),
    "pivot_root": lambda: syscall(155, 41, b"/\0", b"/tmp\0"),
    "fsopen": lambda: syscall(430, 430, b"tmpfs\0", 0),
    "open_tree": lambda: syscall(428, 428, -100, b"/\0", 1),
    "chroot": lambda: os.chroot("/tmp"),
    "a device": lambda: os.mknod("/tmp/TRIAL", 0o60600, os.makedev(8, 0)),
}.items():
    attempt(name, f, REFUSALS)

# name: kernel interfaces by ctypes
for name, f in {
    "ptrace of 1": lambda: syscall(101, 117, 0x4206, 1, 0, 0),
    "ptrace of a parent": lambda: syscall(101, 117, 0, 0, 0, 0),
    "process_vm_readv": lambda: syscall(310, 270, 1, 0, 0, 0, 0, 0),
    "process_vm_writev": lambda: syscall(311, 271, 1, 0, 0, 0, 0, 0),
    "pidfd_getfd": lambda: syscall(438, 438, 0, 0, 0),
    "process_madvise": lambda: syscall(440, 440, 0, 0, 0, 0, 0),
    "io_uring_setup": lambda: syscall(425, 425, 8, (ctypes.c_char * 120)()),
    "io_uring_enter": lambda: syscall(426, 426, 0, 1, 1, 1, 0, 0),
    "io_uring_register": lambda: syscall(427, 427, 0, 0, 0, 0),
    "userfaultfd": lambda: syscall(323, 282, 0),
    "memfd_create": lambda: os.memfd_create("x"),
    "memfd_secret": lambda: syscall(447, 447, 0),
    "keyctl": lambda: syscall(250, 219, 0, -3, 1),
    "add_key": lambda: syscall(248, 217, b"user\0", b"x\0", b"y\0", 1, -2),
    "request_key": lambda: syscall(249, 218, b"user\0", b"x\0", 0, 0),
    "bpf": lambda: syscall(321, 280, 0, 0, 0),
    "perf_event_open": lambda: syscall(298, 241, (ctypes.c_uint32 * 34)(1, 136), 0, -1, -1, 0),
    "init_module": lambda: syscall(175, 105, b"x", 1, b"\0"),
    "finit_module": lambda: syscall(313, 273, 0, b"\0", 0),
    "kexec_load": lambda: syscall(246, 104, 0, 0, 0, 0),
    "reboot": lambda: syscall(169, 142, 0xFEE1DEAD, 672274793, 0, 0),
    "swapon": lambda: syscall(167, 224, b"/tmp/x\0", 0),
    "acct": lambda: syscall(163, 89, b"/tmp/x\0"),
    "shmget": lambda: syscall(29, 194, 0, 4096, 0o1666),
    "msgget": lambda: syscall(68, 186, 0, 0o1666),
    "semget": lambda: syscall(64, 190, 0, 1, 0o1666),
    "mq_open": lambda: syscall(240, 180, b"x\0", 0o102, 0o600, 0),
    "syslog": lambda: syscall(103, 116, 3, ctypes.create_string_buffer(100), 100),
    "clock_settime": lambda: time.clock_settime(time.CLOCK_REALTIME, 1.0),
    "sethostname": lambda: socket.sethostname("mine"),
    "open_by_handle_at": lambda: syscall(304, 265, -100, (ctypes.c_uint32 * 4)(8, 1), 0),
    "fanotify_init": lambda: syscall(300, 262, 4, 0),
    "quotactl": lambda: syscall(179, 60, 0, 0, 0, 0),
    "kcmp": lambda: syscall(312, 272, 1, os.getpid(), 0, 0, 0),
    "move_pages of 1": lambda: syscall(279, 239, 1, 0, 0, 0, 0, 0),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "another seccomp filter": lambda: syscall(157, 167, 22, 1, 0, 0, 0),
    "vhangup": lambda: syscall(153, 58),
    "iopl": lambda: syscall(172, None, 3),
    "modify_ldt": lambda: syscall(154, None, 1, 0, 0),
}.items():
    attempt(name, f, REFUSALS)

# name: what holds up the programs of others
import fcntl

with open("/tmp/TRIAL-leased", "w"):
    pass
mine = os.open("/tmp/TRIAL-leased", os.O_RDONLY)
shared = os.open(sys.executable, os.O_RDONLY)
pipe = os.pipe()[1]
for name, f in {
    "a lease on a file of its own": lambda: fcntl.fcntl(mine, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "a lease on a shared file": lambda: fcntl.fcntl(shared, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "a notification": lambda: fcntl.fcntl(os.open("/tmp", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_MODIFY),
    "an owner of a descriptor": lambda: fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid()),
    "a signal of a descriptor": lambda: fcntl.fcntl(pipe, 10, 40),
    "a larger pipe": lambda: fcntl.fcntl(pipe, 1031, 1 << 20),
    "inotify": lambda: syscall(294, 26, 0),
    "a filter of a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(socket.SOL_SOCKET, 26, bytes(16)),
}.items():
    attempt(name, f, {errno.EPERM})
fcntl.lockf(os.open("/tmp/TRIAL-leased", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
out(held=True, seen="control: a lock of a file works")
os.remove("/tmp/TRIAL-leased")

# name: {what} without end
# each: what = timers signals
# expected: at most 300
blocked = (ctypes.c_uint64 * 16)(1 << 39)
libc.pthread_sigmask(0, blocked, None)
info, timer = (ctypes.c_int * 32)(40, 0, -1), (ctypes.c_int * 1)()
calls = {
    "timers": lambda: syscall(222, 107, 1, (ctypes.c_int * 16)(0, 0, 0, 1), timer),
    "signals": lambda: syscall(129, 138, os.getpid(), 40, info),
}
n = 0
try:
    while n < 5000:
        calls["{what}"]()
        n += 1
except OSError as e:
    out(held=e.errno == errno.EAGAIN and n <= 300, seen=f"{n} {what}: {e}")
else:
    out(held=False, seen=f"{n} {what}")

# name: a system call of another table
# only: embedded
# no pod: the filter of the container runtime refuses it first
# note: That of x32, of an amd64 kernel. Docker's own filter ends the process instead (exit code 159).
attempt("getpid of x32", lambda: syscall(0x40000027, None), REFUSALS)

# name: processes
# note: posix_spawn tries with vfork, multiprocessing with fork and spawn.
import multiprocessing
import subprocess


def worker(how):
    p = multiprocessing.get_context(how).Process(target=print)
    p.start()
    p.join()
    return p.exitcode


for name, f in {
    "fork": os.fork,
    "forkpty": os.forkpty,
    "vfork": lambda: syscall(58, None),
    "clone": lambda: syscall(56, 220, 17, 0, 0, 0, 0),
    "posix_spawn": lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", "1"], {}),
    "subprocess": lambda: subprocess.run([sys.executable, "-c", "1"]),
    "a shell": lambda: subprocess.run("id", shell=True),
    "popen": lambda: os.popen("id").read(),
    "multiprocessing by fork": lambda: worker("fork"),
    "multiprocessing by spawn": lambda: worker("spawn"),
}.items():
    attempt(name, f, CLOSED)

# name: signals to other processes
# expected: there are none, or refused
# note: Process 1 is bubblewrap's in embedded mode, of this sandbox alone, and ignores what it gets from inside.
reached = []
for pid in range(1, 1 << 16):
    if pid != os.getpid():
        with contextlib.suppress(OSError):
            os.kill(pid, 9 if pid == 1 else 0)
            reached.append(pid)
with contextlib.suppress(OSError):
    os.kill(-1, 9)  # it succeeds, and reaches nobody, where all others refuse
out(held=not [pid for pid in reached if pid > 1], seen=f"reached {reached}")

# name: another program
# expected: none starts
# judge: both(verdicts(), ends("still this process"))
# no pod: volumes of pods cannot be mounted noexec; what starts is confined as this process is
# note: What exec starts replaces this process, and the last line is missing.
import shutil

with open("/tmp/TRIAL-script", "w") as f:
    f.write(f"#!{sys.executable}\nprint(1)\n")
shutil.copy(sys.executable, "/tmp/TRIAL-copy")
for path in "/tmp/TRIAL-script", "/tmp/TRIAL-copy":
    os.chmod(path, 0o755)
    attempt(path, lambda: os.execv(path, [path, "-c", "1"]), CLOSED)
    os.remove(path)
for path in "/bin/sh", "/usr/bin/env", "/proc/self/exe", "/usr/local/bin/sandboxd", "/usr/local/bin/mcp-bridge":
    if path != "/proc/self/exe" or not os.path.exists(path):
        attempt(path, lambda: os.execv(path, [path]), CLOSED)
out(held=True, seen="still this process")

# name: a program from /skills
# expected: none starts
# judge: both(verdicts(), ends("still this process"))
# only: embedded
# no pod: volumes of pods cannot be mounted noexec
# note: Docker volumes cannot be mounted noexec.
import shutil

shutil.copy(sys.executable, "/skills/TRIAL")
os.chmod("/skills/TRIAL", 0o755)
attempt("exec", lambda: os.execv("/skills/TRIAL", ["x", "-c", "1"]), CLOSED)
os.remove("/skills/TRIAL")
out(held=True, seen="still this process")

# name: the interpreter once more
# expected: confined as before
# judge: both(verdicts(), ends("once more"))
# note: exec itself cannot be refused: the sandbox starts the interpreter with it.
os.execv(sys.executable, [sys.executable, "-c", """
import ctypes, json, os, socket
libc = ctypes.CDLL(None)
def refused(call):
    try: call()
    except OSError as e: return str(e)
held = [libc.prctl(39, 0, 0, 0, 0) == 1, libc.prctl(21, 0, 0, 0, 0) == 2, refused(os.fork), refused(lambda: socket.socket(socket.AF_UNIX)), refused(lambda: open("/proc/self/status"))]
print(json.dumps({"held": all(held), "seen": f"once more {held}"}))
"""])

# name: sockets of other kinds
# note: A family whose module the kernel has not loaded is refused as one that it does not know.
for name, family, kind, protocol in [
    ("ICMP", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), ("ping", socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    ("raw", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW), ("packets", socket.AF_PACKET, socket.SOCK_RAW, 0x300),
    ("IPv6", socket.AF_INET6, socket.SOCK_STREAM, 0), ("UDP over IPv6", socket.AF_INET6, socket.SOCK_DGRAM, 0),
    ("unix", socket.AF_UNIX, socket.SOCK_STREAM, 0), ("vsock", 40, socket.SOCK_STREAM, 0), ("ciphers", 38, socket.SOCK_SEQPACKET, 0),
    ("bluetooth", 31, socket.SOCK_RAW, 1), ("key", 15, socket.SOCK_RAW, 2), ("tipc", 30, socket.SOCK_STREAM, 0), ("xdp", 44, socket.SOCK_RAW, 0),
    ("can", 29, socket.SOCK_RAW, 1), ("rds", 21, socket.SOCK_SEQPACKET, 0), ("netfilter", 16, socket.SOCK_RAW, 12), ("audit", 16, socket.SOCK_RAW, 9),
    ("sctp", socket.AF_INET, socket.SOCK_STREAM, 132), ("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262), ("udplite", socket.AF_INET, socket.SOCK_DGRAM, 136),
    ("dccp", socket.AF_INET, 6, 33), ("smc", 43, socket.SOCK_STREAM, 0),
]:
    attempt(name, lambda: socket.socket(family, kind, protocol), REFUSALS | {errno.EINVAL})

# name: files of the machine
# expected: out of reach
own = str(os.getpid())
paths = """/proc /proc/mounts /proc/version /proc/cpuinfo /proc/meminfo /proc/cmdline /proc/modules /proc/uptime /proc/keys /proc/stat
/proc/net/tcp /proc/net/unix /proc/sys/kernel/hostname /proc/config.gz /proc/kcore /proc/thread-self/status /sys /sys/class/net /sys/fs/cgroup
/sys/kernel/notes /etc/passwd /etc/shadow /etc/group /etc/hosts /etc/hostname /etc/os-release /etc/machine-id /etc/mtab /etc/codeforge/ca/ca.key
/dev/zero /dev/full /dev/tty /dev/shm /dev/mqueue /dev/mem /dev/kmsg /dev/sda /dev/fuse /dev/kvm /run /var /root /home /boot /mnt /opt /srv
/.dockerenv /bin /usr/sbin /usr/bin/sh /apis /apis/httpbin/config.json /var/lib/sandboxd /var/lib/codeforge/ca-private/ca.key /run/net/owner
/run/sandboxd/sandboxd.sock /var/run/docker.sock /dev/shm/run/control.sock /usr/lib/python3/dist-packages/../../../../etc/passwd""".split()
for pid in "self", "1", "2", own, str(os.getppid()):
    for name in "mountinfo environ cmdline cgroup maps mem status stat comm fd fdinfo/0 root/etc/passwd cwd ns net/dev".split():
        if name != "cwd" or pid not in ("self", own):  # its own is /tmp, where other runs leave files
            paths.append(f"/proc/{pid}/{name}")
# Directories of the sandbox itself whose names are the same on every machine.
KNOWN = {"/proc/self", "/etc/codeforge", "/etc/resolv.conf", "/etc/ssl", "/dev/null", "/dev/random", "/dev/urandom"}
opened = []
for path in paths:
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            if [n for n in os.listdir(path) if path + "/" + n not in KNOWN]:
                opened.append(path)
        else:
            with open(path, "rb", buffering=0) as f:
                if f.read(64):
                    opened.append(path)
out(held=not opened, seen=f"{len(paths)} tried, open {opened}")

# name: files of the machine by a symbolic link
# expected: out of reach
for i, to in enumerate(["/etc/passwd", "/proc/self/environ", "/proc/1/root/etc/passwd", "/var/run/docker.sock"]):
    link = f"/tmp/TRIAL-{i}"
    with contextlib.suppress(OSError):
        os.symlink(to, link)
    attempt(to, lambda: open(link, "rb").read(1), CLOSED | {errno.ENXIO})
    with contextlib.suppress(OSError):
        os.remove(link)
attempt("a hard link", lambda: os.link("/etc/passwd", "/tmp/TRIAL"), CLOSED)
attempt("a hard link to the program", lambda: os.link(sys.executable, "/tmp/TRIAL"), CLOSED)

# name: writing outside
# expected: nowhere
here = os.path.dirname(os.path.abspath(__file__))
for path in ["/x", "/usr/x", "/usr/lib/x", here + "/x", "/etc/x", "/dev/x", "/dev/shm/x", "/runs/x", "/proc/x", "/proc/self/oom_score_adj", "/proc/sys/kernel/core_pattern",
             "/sys/x", "/sys/fs/cgroup/cgroup.procs", os.path.dirname(os.__file__) + "/x.py", sys.executable, "/etc/resolv.conf", os.environ["SSL_CERT_FILE"], "/dev/mem"]:
    attempt(path, lambda: open(path, "r+b" if os.path.exists(path) else "wb"), CLOSED | {errno.ETXTBSY})
attempt("its own code", lambda: open(__file__, "r+b"), CLOSED)
attempt("another code", lambda: os.rename(__file__, here + "/other.py"), CLOSED)
attempt("attributes", lambda: os.setxattr(__file__, "user.x", b"x"), CLOSED)
attempt("/runs", lambda: os.chmod("/runs", 0o777), CLOSED)
attempt("a run's output", lambda: os.mkdir("/runs/TRIAL"), CLOSED)

# name: more than the limits
# expected: cannot be raised
import resource

for name in "NPROC", "NOFILE", "CORE", "FSIZE":
    which = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(which)
    out(held=hard != resource.RLIM_INFINITY, seen=f"{name} is {hard}")
    # prlimit64, because the module gives a ValueError
    attempt(name, lambda: syscall(302, 261, 0, which, (ctypes.c_uint64 * 2)(hard + 1, hard + 1), 0), REFUSALS)

# name: a terminal
# expected: none
import fcntl

for fd in range(3):
    attempt(f"TIOCSTI on {fd}", lambda: fcntl.ioctl(fd, 0x5412, b"x"))
attempt("/dev/tty", lambda: open("/dev/tty"), CLOSED | {errno.ENXIO})

# name: the folders beside /out
# expected: refused by the kernel
mine = os.stat("/out")
for folder in [f"/out/../out{n}" for n in range(16)] + [f"/home/out{n}" for n in range(16)] + ["/out/..", "/home"]:
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(folder), mine):
            continue
    attempt(f"a file in {folder}", lambda: open(folder + "/TRIAL-theirs", "w"), REFUSALS | {errno.ENOENT})
    if folder != "/out/..":
        attempt(f"the names in {folder}", lambda: os.listdir(folder), REFUSALS | {errno.ENOENT})

# name: what is left of CodeForge in memory and descriptors
# expected: nothing
# note: Where all slots share a mount namespace, /out is a link to a descriptor, and /files one into the folder of the slot's code.
known = [os.stat("/out")]
if os.path.islink("/files"):
    known.append(os.stat(os.path.dirname(os.readlink("/files"))))
fds = []
for fd in range(3, 1024):
    with contextlib.suppress(OSError):
        if not any(os.path.samestat(os.fstat(fd), place) for place in known):
            fds.append((fd, os.fstat(fd).st_mode))
out(held=not fds, seen=f"descriptors {fds}")
# A token name is the value of its own variable.
held = {k: v for k, v in os.environ.items() if k != v and k not in ("NO_COLOR", "TZ", "LANG", "HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTPLIB2_CA_CERTS",
                                                     "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "AWS_CA_BUNDLE", "NETRC", "PWD",
                                                     "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "prod_db_password", "deploy_token")}
out(held=not held, seen=f"environment {held}")
