// Attempts on files, processes and the interpreter's own permissions.

// expected: denied
// judge: verdicts()

// name: control: what code may do
// expected: works
// note: Without which a sandbox that can do nothing would hold all of these.
{
  const tries = {
    read: async () => {
      await Deno.writeTextFile("/tmp/TRIAL-mine", "mine");
      const t = await Deno.readTextFile("/tmp/TRIAL-mine");
      await Deno.remove("/tmp/TRIAL-mine");
      return t === "mine";
    },
    skills: () => [...Deno.readDirSync("/skills")].length >= 0,
    connect: async () => {
      const c = await Deno.connect({ hostname: "httpbin.test", port: 443 });
      c.close();
      return true;
    },
    resolve: async () => (await Deno.resolveDns("httpbin.test", "A").catch(() => ["refused too"])).length > 0,
    fetch: async () => (await (await fetch("https://httpbin.test/x/ok?t=TRIAL")).text()) === "ok",
    worker: () =>
      new Promise((ok) => {
        const w = new Worker("data:application/javascript,self.postMessage(1)", { type: "module" });
        w.onmessage = () => {
          w.terminate();
          ok(true);
        };
        w.onerror = () => ok(false);
      }),
  };
  for (const [name, f] of Object.entries(tries)) {
    let r;
    try {
      r = await f();
    } catch (e) {
      r = e.message;
    }
    out({ held: r === true, seen: name + " " + r });
  }
}

// name: reading /etc
await attempts(
  () => Deno.readTextFile("/etc/passwd"),
  () => Deno.readTextFile("/etc/shadow"),
  () => Deno.readTextFile("/etc/hosts"),
  () => Deno.readTextFile("/etc/resolv.conf"),
  () => Deno.readTextFile("/etc/codeforge/ca/ca.key"),
);

// name: reading /proc
await attempts(
  () => Deno.readTextFile("/proc/1/environ"),
  () => Deno.readTextFile("/proc/self/environ"),
  () => Deno.readTextFile("/proc/self/maps"),
  () => Deno.readTextFile("/proc/self/mountinfo"),
  () => Deno.readTextFile("/proc/net/tcp"),
  () => Deno.readTextFile("/proc/1/cmdline"),
  () => Deno.readTextFile("/proc/self/status"),
);

// name: reading the proxy's files
await attempts(
  () => Deno.readTextFile("/apis/httpbin/config.json"),
  () => Deno.readTextFile("/var/lib/codeforge/ca-private/ca.key"),
  () => Deno.readTextFile("/var/lib/codeforge/tokens/HTTPBIN_TOKEN.json"),
  () => Array.from(Deno.readDirSync("/var/lib/codeforge/tokens")),
  () => Deno.readTextFile("/run/codeforge/credentials/credentials.sock"),
  () => Deno.readTextFile("/dev/shm/run/control.sock"),
  () => Deno.readTextFile("/dev/shm/logins/credentials.sock"),
  () => Deno.readTextFile("/dev/shm/ca/ca.key"),
  () => Deno.readTextFile("/run/secrets/x"),
);

// name: reading through ..
await attempts(
  () => Deno.readTextFile("/tmp/../etc/passwd"),
  () => Deno.readTextFile("/skills/../etc/passwd"),
  () => Deno.readTextFile("/runs/../../etc/passwd"),
  () => Deno.readTextFile("/tmp/./.././etc/passwd"),
);

// name: reading devices and the kernel
await attempts(
  () => Deno.readTextFile("/dev/mem"),
  () => Deno.readTextFile("/dev/kmsg"),
  () => Deno.readTextFile("/sys/kernel/notes"),
  () => Deno.readTextFile("/dev/sda"),
  () => Deno.readTextFile("/proc/kcore"),
);

// name: writing outside
await attempts(
  () => Deno.writeTextFile("/etc/x", "y"),
  () => Deno.writeTextFile("/runs/x", "y"),
  () => Deno.writeTextFile("/x", "y"),
  () => Deno.writeTextFile("/usr/local/bin/deno", "y"),
  () => Deno.writeTextFile(new URL(import.meta.url).pathname, "y"),
  () => Deno.remove("/runs", { recursive: true }),
  () => Deno.chmod("/runs", 0o777),
);

// name: the environment
// note: Code finds token names and constants of the sandbox. A name is the value of its own variable.
await attempts(() => {
  const known = /^(HOME|PATH|LANG|TZ|TMPDIR|NO_COLOR|XDG_(CACHE|CONFIG)_HOME|prod_db_password|deploy_token)$/;
  const other = Object.entries(Deno.env.toObject()).filter(([k, v]) => !known.test(k) && k !== v);
  if (other.length === 0) throw new Error("empty");
  return JSON.stringify(other);
}, () => {
  for (const name of ["DENO_DIR", "NPM_CONFIG_REGISTRY", "MCP_AUTH_TOKEN", "USER"]) {
    if (Deno.env.has(name)) return name;
  }
  throw new Error("empty");
});

// name: running programs
await attempts(
  () => new Deno.Command("sh", { args: ["-c", "id"] }).output(),
  () => new Deno.Command("/proc/self/exe", { args: ["--version"] }).output(),
  () => new Deno.Command(Deno.execPath()).output(),
  () => import("node:child_process").then((c) => c.execSync("id")),
  () => new Promise((ok, no) => import("node:child_process").then((c) => c.spawn("id").on("error", no).on("exit", ok))),
);

// name: foreign functions
await attempts(
  () => Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }),
  () => import("node:process").then((p) => p.default.dlopen({ exports: {} }, "/tmp/x.node")),
  () => import("/tmp/x.node"),
);

// name: facts about the machine
await attempts(
  () => Deno.networkInterfaces(),
  () => Deno.systemMemoryInfo(),
  () => Deno.osUptime(),
  () => Deno.loadavg(),
  () => {
    if (Deno.hostname() + Deno.osRelease() === "codeforge6.0.0") throw new Error("constants");
    return Deno.hostname() + Deno.osRelease();
  },
);

// name: asking for more permissions
await attempts(
  () =>
    Deno.permissions.request({ name: "run" }).then((r) => {
      if (r.state !== "granted") throw new Error(r.state);
    }),
  () =>
    Deno.permissions.request({ name: "read", path: "/etc" }).then((r) => {
      if (r.state !== "granted") throw new Error(r.state);
    }),
  () =>
    Deno.permissions.request({ name: "net", host: "evil.test" }).then((r) => {
      if (r.state !== "granted") throw new Error(r.state);
    }),
);

// name: a worker with more permissions
await attempts(
  () =>
    new Promise((ok, no) => {
      const w = new Worker(
        "data:application/javascript," +
          encodeURIComponent(
            "try { self.postMessage(Deno.readTextFileSync('/etc/passwd')); } catch (e) { self.postMessage('no ' + e.name); }",
          ),
        { type: "module", deno: { permissions: "inherit" } },
      );
      w.onmessage = (m) => String(m.data).startsWith("no ") ? no(new Error(m.data)) : ok(m.data);
      w.onerror = (e) => {
        e.preventDefault();
        no(new Error(e.message));
      };
    }),
);

// name: killing others
await attempts(
  () => Deno.kill(1, "SIGKILL"),
  () => import("node:process").then((p) => p.default.kill(1, 9)),
  () => Deno.addSignalListener("SIGKILL", () => {}),
);

// name: symbolic links out of /tmp
await attempts(
  () => Deno.symlink("/etc/passwd", "/tmp/TRIAL-a").then(() => Deno.readTextFile("/tmp/TRIAL-a")),
  () => Deno.symlink("/proc/self/environ", "/tmp/TRIAL-b").then(() => Deno.readTextFile("/tmp/TRIAL-b")),
  () => Deno.symlink("/", "/tmp/TRIAL-c").then(() => Deno.readTextFile("/tmp/TRIAL-c/etc/passwd")),
  () => Deno.symlink("/etc", "/skills/TRIAL-d").then(() => Deno.readTextFile("/skills/TRIAL-d/passwd")),
);

// name: hard links and devices
await attempts(
  () => Deno.link("/etc/passwd", "/tmp/TRIAL-e").then(() => Deno.readTextFile("/tmp/TRIAL-e")),
  () => import("node:fs").then((f) => f.linkSync("/etc/passwd", "/tmp/TRIAL-f")),
  () => Deno.rename("/etc/passwd", "/tmp/TRIAL-g"),
  () => Deno.mkdir("/proc/TRIAL"),
);

// name: the other runs' outputs
await attempts(
  () => Deno.writeTextFile("/runs/TRIAL/stdout.txt", "x"),
  () => Deno.mkdir("/runs/TRIAL"),
  () => Deno.symlink("/etc/passwd", "/runs/TRIAL"),
);

// name: the inspector and node internals
await attempts(
  () =>
    import("node:inspector").then((i) => {
      i.open(9229, "0.0.0.0");
      return i.url();
    }),
  () => import("node:v8").then((v) => v.writeHeapSnapshot("/etc/x")),
  () =>
    import("node:cluster").then((c) => {
      c.default.setupPrimary({ exec: "/bin/sh" });
      return new Promise((ok, no) => {
        try {
          const w = c.default.fork();
          w.on("error", no);
          w.on("online", ok);
        } catch (e) {
          no(e);
        }
      });
    }),
);
