const auth = { Authorization: "Bearer ALLOWED_TOKEN" };
const base = "https://files.limited.test";
const list = await (await fetch(base + "/files", { headers: auth })).json();
const file = list.files.find((f: { name: string }) => f.name.endsWith(".csv"));
const r = await fetch(`${base}/files/${file.id}/content`, { headers: auth });
if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
const bytes = new Uint8Array(await r.arrayBuffer());
const hex = (b: ArrayBuffer) => [...new Uint8Array(b)].map((x) => x.toString(16).padStart(2, "0")).join("");
if (hex(await crypto.subtle.digest("SHA-256", bytes)) !== file.sha256) throw new Error("the checksum differs");
const sums: Record<string, number> = {};
for (const line of new TextDecoder().decode(bytes).trim().split("\r\n").slice(1)) {
  const m = line.match(/^([^,]*),"(.*)",(.*)$/);
  if (!m) throw new Error("cannot read: " + line);
  sums[m[1]] = (sums[m[1]] ?? 0) + Number(m[3]);
}
const form = new FormData();
form.set("metadata", JSON.stringify({ name: "report \"2026\".json" }));
form.set("file", new Blob([JSON.stringify(sums)], { type: "application/json" }), "report 2026.json");
const up = await fetch(base + "/files", { method: "POST", headers: auth, body: form });
if (!up.ok) throw new Error(`${up.status} ${await up.text()}`);
const made = await up.json();
await Deno.writeTextFile("/tmp/report.json", JSON.stringify(sums));
console.log(bytes.length, JSON.stringify(sums), made.name, made.size);
