// Runs before the user's code (deno run --preload warm.ts main.ts), in an interpreter started ahead of time.
// One zero byte says that the interpreter is up. A line feed on standard input says that main.ts has been written; any
// other byte before it, that there is no code yet.

// When the code has come to its end, and the last listeners of its end have been called, the process exits at once:
// taking V8 apart first would take longer than most code runs. Deno calls this where node:process, which has listeners
// of its own, would put its function; where it is loaded it does, and nothing is cut short.
{
  // deno-lint-ignore no-explicit-any
  const deno = Deno as any, internals = deno[deno.internal], exit = Deno.exit;
  if (internals) internals.dispatchProcessExitEvent ??= () => exit();
}

Deno.stdout.writeSync(new Uint8Array(1));
const order = new Uint8Array(1);
let n = Deno.stdin.readSync(order);
if (n === 1 && order[0] !== 10) {
  // There is time. Nearly all code calls fetch, which Deno loads when it is first used; and the first TLS handshake waits
  // until the random numbers are seeded. Either takes longer than the rest of a short run. Nothing leaves the process
  // here, and no error matters: the code would meet it too.
  crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]).catch(() => {}); // seeds, on another thread
  try {
    const request = new Request("data:application/json,{}", { method: "POST", body: "{}", headers: { a: "b" } });
    Deno.inspect(await (await fetch(request)).json());
  } catch { /* see above */ }
  n = Deno.stdin.readSync(order);
}
if (n !== 1) Deno.exit(0);
