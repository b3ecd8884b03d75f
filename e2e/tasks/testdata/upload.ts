const auth = { Authorization: "Bearer CERTS_TOKEN" };
const size = 1_200_000, piece = 256 * 1024;
const data = new Uint8Array(size).map((_, i) => i * 31 % 251);
const start = await fetch("https://media.limited.test/uploads", {
  method: "POST", headers: { ...auth, "Content-Type": "application/json" }, body: JSON.stringify({ name: "data.bin", size }),
});
if (!start.ok) throw new Error(`${start.status} ${await start.text()}`);
const url = start.headers.get("location")!;
let done: any;
for (let from = 0; from < size; from += piece) {
  const to = Math.min(from + piece, size);
  const r = await fetch(url, {
    method: "PUT", headers: { ...auth, "Content-Range": `bytes ${from}-${to - 1}/${size}` }, body: data.subarray(from, to), redirect: "manual",
  });
  if (r.status === 308) { await r.body?.cancel(); continue; }
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
  done = await r.json();
}
const hash = [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))].map((b) => b.toString(16).padStart(2, "0")).join("");
console.log(done.size, done.sha256 === hash ? "checksum ok" : "checksum differs");
