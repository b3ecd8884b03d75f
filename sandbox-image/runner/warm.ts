// Runs before the user's code (deno run --preload warm.ts main.ts), in an interpreter started ahead of time.
// One zero byte says that the interpreter is up; one byte on standard input says that main.ts has been written.

// When the code has come to its end, and the last listeners of its end have been called, the process exits at once:
// taking V8 apart first would take longer than most code runs. Deno calls this where node:process, which has listeners
// of its own, would put its function; where it is loaded it does, and nothing is cut short.
{
  // deno-lint-ignore no-explicit-any
  const deno = Deno as any, internals = deno[deno.internal], exit = Deno.exit;
  if (internals) internals.dispatchProcessExitEvent ??= () => exit();
}

Deno.stdout.writeSync(new Uint8Array(1));
if (Deno.stdin.readSync(new Uint8Array(1)) !== 1) Deno.exit(0);
