// Runs before the user's code (deno run --preload warm.ts main.ts), in an interpreter started ahead of time.
// One zero byte says that the interpreter is up; one byte on standard input says that main.ts has been written.
Deno.stdout.writeSync(new Uint8Array(1));
if (Deno.stdin.readSync(new Uint8Array(1)) !== 1) Deno.exit(0);
