# Attempts to use up the machine. Behind each the next run must work.

# name: endless loop
# expected: ends at its time
# judge: ends("time")
# seconds: 2
while True:
    pass

# name: endless waiting
# expected: ends at its time
# judge: ends("time")
# seconds: 2
time.sleep(1e6)

# name: catastrophic regular expression
# expected: ends at its time
# judge: ends("time")
# seconds: 2
import re

re.match(r"(a+)+$", "a" * 60 + "b")

# name: a run that ignores signals and will not end
# expected: ends at its time
# judge: ends("time")
# seconds: 2
import atexit
import signal

for number in range(1, 65):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)
atexit.register(time.sleep, 1e6)
sys.exit()

# name: threads that keep it alive
# expected: ends at its time
# judge: ends("time")
# seconds: 2
threading.Thread(target=time.sleep, args=(1e6,)).start()

# name: top-level await that never ends
# expected: ends at its time
# judge: ends("time")
# seconds: 2
import asyncio

await asyncio.Event().wait()

# name: a storm of forks
# expected: no process
# judge: both(verdicts(), ends())
# seconds: 10
# alone: yes
n = 0
for _ in range(20000):
    try:
        if os.fork() == 0:
            os._exit(0)
        n += 1
    except OSError:
        pass
out(held=n == 0, seen=f"{n} processes")

# name: a storm of clones
# expected: no process
# judge: both(verdicts(), ends())
# seconds: 10
# alone: yes
n = 0
for flags in 17, 0x4000 | 17, 0x4100 | 17, 0x100 | 17, 0x8000 | 17, 0x80000000 | 17:
    for _ in range(500):
        try:
            if syscall(56, 220, flags, 0, 0, 0, 0) == 0:
                os._exit(0)
            n += 1
        except OSError:
            pass
out(held=n == 0, seen=f"{n} processes")

# name: threads without end
# expected: bounded
# judge: both(verdicts(), ends())
# seconds: 20
# alone: yes
# forks: yes
stop, n = threading.Event(), 0
try:
    while n < 5000:
        threading.Thread(target=stop.wait, daemon=True).start()
        n += 1
except (RuntimeError, MemoryError):
    pass
stop.set()
out(held=n < 5000, seen=f"{n} threads")

# name: list bomb
# expected: ends at its limit
# judge: weighed(ended("more memory than its limit"))
# seconds: 90
# alone: yes
# weighed: yes
held = []
while True:
    held.append([0.5] * 100000)

# name: buffers of 2.5 GiB
# expected: ends at its limit
# judge: weighed(ended("more memory than its limit"))
# seconds: 90
# alone: yes
# weighed: yes
held = [b"1" * (64 << 20) for _ in range(40)]
time.sleep(1.5)
out(seen="took them all")

# name: pages of mmap by ctypes
# expected: ends at its limit
# judge: weighed(ended("more memory than its limit"))
# seconds: 90
# alone: yes
# weighed: yes
libc.mmap.restype = ctypes.c_void_p
for _ in range(40):
    at = libc.mmap(None, ctypes.c_size_t(64 << 20), 3, 0x22, -1, 0)
    ctypes.memset(at, 1, 64 << 20)
time.sleep(1.5)
out(seen="took them all")

# name: shared pages
# expected: refused, or ends at its limit
# judge: weighed(overweight)
# seconds: 20
# alone: yes
# weighed: yes
import mmap

held = []
try:
    for _ in range(40):
        m = mmap.mmap(-1, 64 << 20)  # shared, without a name
        for at in range(0, len(m), 4096):
            m[at] = 1
        held.append(m)
    time.sleep(1.5)
    out(held=False, seen="took them all")
except OSError as e:
    out(held=len(held) < 16, seen=f"{len(held)}, then {e}")

# name: shared memory by multiprocessing
# expected: refused
# judge: verdicts()
# seconds: 20
from multiprocessing import shared_memory

attempt("SharedMemory", lambda: shared_memory.SharedMemory(create=True, size=1 << 20), CLOSED)

# name: open and removed files of 2.5 GiB
# expected: ends at its limit
# judge: weighed(ended("that it had removed"))
# seconds: 90
# alone: yes
# weighed: yes
held, total = [], 0
try:
    for n in range(20):
        f = open(f"/tmp/TRIAL-{n}", "xb", buffering=0)
        os.remove(f.name)
        held.append(f)
        for _ in range(127):
            total += f.write(b"1" * (1 << 20))
        time.sleep(0.05)
except OSError as e:
    why(e)
time.sleep(5)
out(seen=f"held {total >> 20} MiB to its end")

# name: pipes
# expected: bounded
# judge: weighed(overweight)
# seconds: 20
# alone: yes
# weighed: yes
import fcntl

total = 0
try:
    while total < 2 << 30:
        r, w = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(w, False)
        while True:
            try:
                total += os.write(w, b"1" * (1 << 16))
            except BlockingIOError:
                break
    time.sleep(1.5)
except OSError as e:
    why(e)
out(held=total < 1 << 30, seen=f"{total >> 20} MiB in pipes")

# name: recursion without end
# expected: an error
# judge: ends("RecursionError")
# seconds: 20
def deeper():
    return deeper() + 1


deeper()

# name: recursion without end and without a limit
# expected: ends
# judge: ends()
# seconds: 20
sys.setrecursionlimit(1 << 30)


class Deep:
    def __getattr__(self, name):
        return getattr(self, name)


repr(Deep().x)

# name: output flood
# expected: ended at its limit
# judge: ends("printed more")
# seconds: 60
while True:
    sys.stdout.buffer.write(b"x" * (1 << 16) + b"\n")

# name: output flood on stderr
# expected: cut or ended
# judge: ends("printed more")
# seconds: 60
while True:
    sys.stderr.buffer.write(b"x" * (1 << 16) + b"\n")

# name: output that is not UTF-8
# expected: replaced
# judge: ends("not valid UTF-8")
# seconds: 10
sys.stdout.buffer.write(bytes(range(256)) * 400)

# name: control characters in the output
# expected: harmless
# judge: ends()
# seconds: 10
print("\x1b]0;title\x07\x1b[2J\x00\x08")

# name: file flood in /tmp
# expected: bounded
# judge: ends()
# seconds: 20
# alone: yes
n = 0
try:
    while True:
        with open(f"/tmp/TRIAL-{n}", "xb") as f:
            n += 1
            f.write(bytes(8 << 20))
except OSError as e:
    why(e)
for i in range(n):
    os.remove(f"/tmp/TRIAL-{i}")

# name: a sparse file in /tmp
# expected: bounded
# judge: both(verdicts(), ends())
# seconds: 10
with open("/tmp/TRIAL", "wb") as f:
    attempt("a terabyte", lambda: f.truncate(1 << 40), {errno.EFBIG})
os.remove("/tmp/TRIAL")

# name: a huge file in /skills
# expected: bounded
# judge: ends()
# seconds: 20
# alone: yes
try:
    with open("/skills/TRIAL.py", "xb") as f:
        for _ in range(2048):
            f.write(bytes(1 << 20))
    out(seen="2 GiB written")
except OSError as e:
    why(e)
finally:
    with contextlib.suppress(OSError):
        os.remove("/skills/TRIAL.py")

# name: thousands of sockets
# expected: bounded
# judge: ends()
# seconds: 20
held = []
try:
    for _ in range(3000):
        s = socket.socket()
        held.append(s)
        s.setblocking(False)
        s.connect_ex((RESOLVER, 443))
except OSError as e:
    why(e)
out(seen=f"{len(held)} sockets")

# name: 500 requests by 64 threads
# expected: bounded
# judge: ends()
# seconds: 60
from concurrent.futures import ThreadPoolExecutor


def ask(_):
    try:
        return urllib.request.urlopen("https://httpbin.test/x/ok?t=TRIAL", timeout=20).status
    except OSError:
        return 0


with ThreadPoolExecutor(64) as pool:
    got = list(pool.map(ask, range(500)))
out(seen=str({s: got.count(s) for s in set(got)}))

# name: a slow upstream
# expected: ends at its time
# judge: ends("time")
# seconds: 3
urllib.request.urlopen("https://httpbin.test/x/slow?t=TRIAL&ms=60000")

# name: an endless upload
# expected: ends at its time
# judge: ends()
# seconds: 3
def endless():
    while True:
        yield b"x" * 65536


show("https://httpbin.test/x/sink?t=TRIAL", data=endless(), headers={"Content-Type": "text/plain"}, method="POST")
