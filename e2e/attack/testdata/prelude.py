# What every attack in Python can use. The runner puts it in front.
import contextlib, ctypes, errno, json, os, socket, ssl, sys, threading, time, urllib.error, urllib.request  # noqa: E401

TARGETS = ["10.99.0.10", "10.99.0.1", "93.184.215.14", "10.77.0.1", "10.77.0.2", "10.77.0.3", "127.0.0.1", "127.0.0.11",
           "169.254.169.254", "172.17.0.1", "8.8.8.8"]
RESOLVER = "198.18.0.1"
ARM = os.uname().machine == "aarch64"
libc = ctypes.CDLL(None, use_errno=True)

# How the kernel refuses. Any other error means that a call was allowed and its arguments were wrong.
REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}
# How a file is out of reach.
CLOSED = REFUSALS | {errno.ENOENT, errno.ENOTDIR, errno.EXDEV}


def out(**line):
    print(json.dumps(line), flush=True)


def why(e):
    out(error=str(e) or repr(e), kind=type(e).__name__)


def auth(name, **headers):
    return {"Authorization": "Bearer " + name, **headers}


def show(url, headers={}, **more):
    """Prints an answer, or why there is none, as one line of JSON."""
    try:
        try:
            r = urllib.request.urlopen(urllib.request.Request(url, headers=headers, **more), timeout=15)
        except urllib.error.HTTPError as e:
            r = e
        text = r.read().decode("utf-8", "replace")
        try:
            code = json.loads(text).get("code") or ""
        except (ValueError, AttributeError):
            code = ""
        out(status=r.status, code=code, text=text[:3000], length=len(text))
    except OSError as e:
        why(e)


def attempt(name, call, refusals=None):
    """Tries what must fail: with one of these numbers, or as any OSError does. Another failure is a mistake in itself."""
    try:
        gave = call()
    except OSError as e:
        held = refusals is None or e.errno in refusals
        out(held=held, seen=f"{name}: {e}" if held else f"{name} was not refused: {e}")
    except Exception as e:
        out(held=False, seen=f"{name} was not tried: {e!r}")
    else:
        out(held=False, seen=f"{name} gave {str(gave)[:60]}")


def syscall(amd64, arm64, *args):
    """A system call by its number, or ENOSYS where the machine has none."""
    number = arm64 if ARM else amd64
    if number is None:
        raise OSError(errno.ENOSYS, "no such call on this machine")
    ctypes.set_errno(0)
    gave = libc.syscall(ctypes.c_long(number), *[a if isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in args])
    if gave == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return gave


