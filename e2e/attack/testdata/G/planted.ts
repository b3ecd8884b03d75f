// Files that code plants in /skills, for mcp-server to show what they are or lead to.

// chain: skills
// no pod: what code writes to /skills stays in its pod; mcp-server has the skills that CodeForge ships, read-only
// judge: unshown

// name: a symbolic link out of /skills
// expected: never followed
try {
  Deno.symlinkSync("/etc/passwd", "/skills/planted.ts");
} catch (e) {
  why(e);
}

// name: a symbolic link to the proxy's key
// expected: never followed
try {
  Deno.symlinkSync("/dev/shm/ca/ca.key", "/skills/planted.ts");
} catch (e) {
  why(e);
}

// name: a symbolic link to a directory
// expected: never followed
try {
  Deno.symlinkSync("/etc", "/skills/planted");
} catch (e) {
  why(e);
}

// name: a hard link into /skills
// expected: never read
try {
  Deno.linkSync("/etc/passwd", "/skills/planted.ts");
} catch (e) {
  why(e);
}

// name: a directory named as a skill
// expected: skipped
Deno.mkdirSync("/skills/planted.ts");
Deno.writeTextFileSync("/skills/planted.ts/x", "root:x:0:0");

// name: a skill that is not UTF-8
// expected: the server stays up
Deno.writeFileSync("/skills/planted.ts", new Uint8Array([0x2f, 0x2a, 0x2a, 0xff, 0xfe, 0x00, 0x2a, 0x2f]));

// name: a skill with a credential's name
// expected: no credential appears
Deno.writeTextFileSync("/skills/planted.ts", "/** @description HTTPBIN_TOKEN */\nexport const a = 'HTTPBIN_TOKEN';");
