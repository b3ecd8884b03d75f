// Runs before the user's code (deno run --preload warm.js main.ts), in an interpreter started ahead of time.
// It writes one zero byte when the interpreter is up. On standard input, a line feed or "m" means that main.ts exists.
// After "m" come eight hexadecimal digits with the length of the next two: one line of JSON with the run's MCP servers,
// and mcp.js. The code gets the rest. An "l" before that means: preload, because the code comes later. An "e" before
// the line feed or "m" means: set variables. After it come their length and an object, in the same way. This file is
// not in TypeScript, because transpiling would add 2 ms to each start.

// After the code and its exit listeners, the process exits at once: tearing down V8 takes longer than most code runs.
// Deno calls this hook. If code loads node:process, that module sets another hook, so its listeners run too.
{
  const internals = Deno[Deno.internal], exit = Deno.exit;
  if (internals) internals.dispatchProcessExitEvent ??= () => exit();

  // The console gives each line to V8's inspector first. The inspector is not used here, and it takes longer than
  // printing. So a single string outside of groups, which the console prints unchanged, is printed directly.
  const print = internals?.core?.print;
  if (print) {
    let groups = 0;
    const replace = (name, make) => {
      console[name] = Object.defineProperty(make(console[name]), "name", { value: name });
    };
    for (const name of ["log", "info", "debug", "error", "warn"]) {
      const isError = name === "error" || name === "warn";
      replace(name, (given) => (...args) => {
        if (groups === 0 && args.length === 1 && typeof args[0] === "string") print(args[0] + "\n", isError);
        else given(...args);
      });
    }
    for (const name of ["group", "groupCollapsed"]) replace(name, (given) => (...args) => (groups++, given(...args)));
    replace("groupEnd", (given) => () => (groups = Math.max(0, groups - 1), given()));
    replace("clear", (given) => () => (groups = 0, given()));
  }
}

// Many SDKs name the machine to their API. Code gets constants, and no variable that only Deno or bubblewrap needs. PATH
// is a folder of Deno, and stays for Deno's error if code starts a program.
{
  Deno.hostname = () => "codeforge";
  Deno.osRelease = () => "6.0.0";
  const own = ["DENO_DIR", "DENO_NO_UPDATE_CHECK", "DENO_NODE_SHIM_ACTIVE", "NPM_CONFIG_REGISTRY", "PWD"];
  for (const name of own) Deno.env.delete(name);
}

// Deno loads about a hundred modules when code reads the global process, which takes longer than most code runs. Most code
// reads process.env only. So a proxy answers that, and lets Deno load the rest on any other use.
{
  const given = Object.getOwnPropertyDescriptor(globalThis, "process");
  let real, variables; // Deno's process and its env, once it is loaded
  const load = () => {
    if (!real) {
      real = given.get();
      variables = real.env;
      const now = Object.getOwnPropertyDescriptor(globalThis, "process");
      // The code may have replaced or deleted the global.
      if (now?.get === get) Object.defineProperty(globalThis, "process", given);
    }
    return real;
  };
  // knows returns whether read can answer for a property. All else goes to the object that whole returns.
  const answer = (whole, knows, read) => new Proxy({}, Object.fromEntries(
    Object.getOwnPropertyNames(Reflect).map((trap) => [trap, (_, ...args) => {
      if (trap === "get" && knows(args[0])) return read(args[0]);
      if (trap === "get" || trap === "set") args.pop(); // the receiver, which would be the proxy
      const out = Reflect[trap](whole(), ...args);
      if (trap === "getOwnPropertyDescriptor" && out) out.configurable = true; // a proxy may not say false
      return out;
    }]),
  ));
  const isName = (key) => typeof key === "string" && key !== "" && !/[=\0]/.test(key) && !(key in Object.prototype);
  const env = answer(() => (load(), variables), isName, (key) => Deno.env.get(key));
  const whole = answer(load, (key) => key === "env" && !real, () => env); // code may replace real.env
  const get = () => whole;
  Object.defineProperty(globalThis, "process", {
    get, enumerable: given.enumerable, configurable: true,
    set: (value) => Object.defineProperty(globalThis, "process", { ...given, get: () => value }),
  });
}

// show adds an image or a sound to the answer of execute_code. mcp-server checks the data.
{
  let files = 0, bytes = 0;
  const show = (what) => {
    if (typeof what?.path === "string") what = what.path; // a file from a tool of an MCP server
    const data = typeof what === "string" || what instanceof URL ? Deno.readFileSync(what)
      : ArrayBuffer.isView(what) ? new Uint8Array(what.buffer, what.byteOffset, what.byteLength)
      : what instanceof ArrayBuffer ? new Uint8Array(what) : null;
    if (data === null) throw new TypeError("show wants the path of an image or sound, or its bytes");
    if (files === 4) throw new RangeError("A run shows at most 4 images and sounds");
    if (bytes + data.length > 2 << 20) throw new RangeError("A run shows at most 2 MiB: make the image smaller");
    Deno.mkdirSync("/out/.shown", { recursive: true });
    Deno.writeFileSync(`/out/.shown/${files + 1}`, data);
    files++, bytes += data.length;
  };
  Object.defineProperty(globalThis, "show", { value: show, writable: true, enumerable: false, configurable: true });
}

Deno.stdout.writeSync(new Uint8Array(1));
const order = new Uint8Array(1);
let n = Deno.stdin.readSync(order);
if (n === 1 && order[0] === 108) { // "l"
  // Nearly all code calls fetch, which Deno loads on first use. The first TLS handshake waits for the seed of the
  // random number generator. Each takes longer than the rest of a short run. Preloading sends no request, and ignores
  // errors, because the code would get them too.
  crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]).catch(() => {}); // on another thread
  try {
    const request = new Request("data:application/json,{}", { method: "POST", body: "{}", headers: { a: "b" } });
    Deno.inspect(await (await fetch(request)).json());
  } catch { /* see above */ }
  n = Deno.stdin.readSync(order);
}
const readPart = () => {
  const readBytes = (length) => {
    const out = new Uint8Array(length);
    for (let at = 0, read; at < length && (read = Deno.stdin.readSync(out.subarray(at))) !== null;) at += read;
    return new TextDecoder().decode(out);
  };
  return readBytes(parseInt(readBytes(8), 16));
};
if (n === 1 && order[0] === 101) { // "e"
  for (const [name, value] of Object.entries(JSON.parse(readPart()))) Deno.env.set(name, value);
  n = Deno.stdin.readSync(order);
}
if (n === 1 && order[0] === 109) { // "m"
  const text = readPart();
  const names = ["mcp", "parallel", "stash", "McpError"];
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
  const load = (name) => {
    const line = text.indexOf("\n");
    const source = text.slice(line) + "\n//# sourceURL=ext:codeforge/mcp.js"; // Deno's stack traces leave out ext:
    const made = new Function("servers", source)(JSON.parse(text.slice(0, line)));
    // A global that the code has replaced has no getter, and stays.
    for (const n of names) if (Object.getOwnPropertyDescriptor(globalThis, n)?.get) define(n, made[n]);
    return made[name];
  };
  for (const name of names) {
    Object.defineProperty(globalThis, name, {
      get: () => load(name), set: (v) => define(name, v), enumerable: false, configurable: true,
    });
  }
}
if (n !== 1) Deno.exit(0);
