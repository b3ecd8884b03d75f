const base = "https://media.limited.test", auth = { Authorization: "Bearer CERTS_TOKEN" };
const info = await (await fetch(base + "/archive", { headers: auth })).json();
let parts: Uint8Array[] = [], size = 0, requests = 0;
while (size < info.size && requests < 5) {
  requests++;
  const r = await fetch(base + "/archive.zip", { headers: { ...auth, ...(size ? { Range: `bytes=${size}-` } : {}) } });
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
  if (r.status !== 206) parts = [], size = 0;
  try {
    for await (const chunk of r.body!) parts.push(chunk), size += chunk.length;
  } catch { /* broke off: go on at size */ }
}
const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", await new Blob(parts as BlobPart[]).arrayBuffer())).toHex();
console.log(sum === info.sha256 ? "checksum ok" : "checksum differs", requests);
