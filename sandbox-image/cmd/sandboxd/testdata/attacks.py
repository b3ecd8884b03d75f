"""Tries what code must not be able to do, and prints what it could do. Python has no permissions of its own, so these are
the attacks of code that has already escaped from its language."""
import ctypes, errno, os, resource, socket, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOENT, errno.EROFS, errno.EAFNOSUPPORT, errno.ENOTDIR, errno.EXDEV}
ARM = os.uname().machine == "aarch64"
tried = 0


def attempt(name, call):
    """Prints the name unless the kernel refuses. Any other failure is a mistake of the attack itself."""
    global tried
    tried += 1
    try:
        call()
    except OSError as e:
        if e.errno not in REFUSED:
            print("misfire:", name, e)
        return
    except Exception as e:
        print("misfire:", name, repr(e))
        return
    print("could:", name)


def syscall(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def raise_limit(which):
    try:
        resource.setrlimit(which, (1 << 30, 1 << 30))
    except ValueError as e:  # "not allowed to raise maximum limit"
        raise PermissionError(errno.EPERM, str(e))


def number(amd64, arm64):
    return arm64 if ARM else amd64


def become_root():
    try:
        os.setuid(0)
    except OSError as e:  # EINVAL: the user namespace has no root
        raise PermissionError(errno.EPERM, str(e))


# Other processes, and memory that belongs to nobody.
attempt("ptrace", lambda: syscall(number(101, 117), 0, 0, 0, 0))
attempt("process_vm_readv", lambda: syscall(number(310, 270), 1, 0, 0, 0, 0, 0))
attempt("io_uring", lambda: syscall(425, 8, 0))
attempt("memfd", lambda: os.memfd_create("x"))
attempt("userfaultfd", lambda: syscall(number(323, 282), 0))
attempt("keyctl", lambda: syscall(number(250, 219), 0, -3, 1))
attempt("bpf", lambda: syscall(number(321, 280), 0, 0, 0))
attempt("perf_event_open", lambda: syscall(number(298, 241), 0, 0, -1, -1, 0))
attempt("shared memory", lambda: syscall(number(29, 194), 0, 4096, 0o1600))
attempt("a message queue", lambda: syscall(number(240, 180), 0, 0o100, 0o600, 0))

# Processes and namespaces.
attempt("fork", os.fork)
attempt("vfork", lambda: syscall(58) if not ARM else syscall(220, 17, 0, 0, 0, 0))
attempt("posix_spawn", lambda: os.posix_spawn(sys.executable, [sys.executable], {}))
attempt("subprocess", lambda: subprocess.run([sys.executable, "-c", "1"]))
attempt("a user namespace", lambda: syscall(number(272, 97), 0x10000000))
attempt("a network namespace", lambda: syscall(number(272, 97), 0x40000000))
attempt("setns", lambda: syscall(number(308, 268), 0, 0))
attempt("mount", lambda: syscall(number(165, 40), 0, 0, 0, 0, 0))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("another seccomp filter", lambda: syscall(number(157, 167), 22, 1, 0, 0, 0))
attempt("root", become_root)
attempt("another group", lambda: os.setgroups([0]))
attempt("more threads than allowed", lambda: raise_limit(resource.RLIMIT_NPROC))
attempt("more files than allowed", lambda: raise_limit(resource.RLIMIT_NOFILE))
attempt("larger files than allowed", lambda: raise_limit(resource.RLIMIT_FSIZE))

# Sockets that are no TCP and no UDP.
for family, kind, proto, name in [
    (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, "a raw socket"),
    (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP, "ping"),
    (socket.AF_INET6, socket.SOCK_STREAM, 0, "IPv6"),
    (socket.AF_UNIX, socket.SOCK_STREAM, 0, "a unix socket"),
    (socket.AF_PACKET, socket.SOCK_RAW, 0, "packets"),
    (socket.AF_VSOCK, socket.SOCK_STREAM, 0, "vsock"),
    (38, socket.SOCK_SEQPACKET, 0, "the kernel's ciphers"),
    (socket.AF_NETLINK, socket.SOCK_RAW, 12, "netfilter"),
]:
    attempt(name, lambda: socket.socket(family, kind, proto))

# Files of the machine, of the daemons and of other runs.
for path in [
    "/proc/self/maps", "/proc/self/environ", "/proc/1/environ", "/proc/version", "/proc/mounts", "/proc/self/mem", "/sys/kernel",
    "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root", "/home", "/var/lib/sandboxd", "/var/log", "/run", "/dev/mem", "/dev/kmsg",
    "/dev/zero", "/dev/tty", "/bin", "/usr/sbin", "/usr/lib/python3/dist-packages/../../../../etc/passwd",
]:
    attempt("reading " + path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
here = os.path.dirname(os.path.abspath(__file__))
for path in ["/x", "/usr/lib/x", here + "/x", "/etc/x", "/dev/x", "/dev/shm/x", "/runs/x", "/proc/x", os.path.dirname(os.__file__) + "/x.py"]:
    attempt("writing " + path, lambda: open(path, "w"))
attempt("changing the code", lambda: open(__file__, "r+b"))
attempt("a device", lambda: os.mknod("/tmp/device", 0o20666, os.makedev(1, 1)))
attempt("attributes in memory", lambda: os.setxattr(__file__, "user.x", b"x"))

print("tried", tried)
