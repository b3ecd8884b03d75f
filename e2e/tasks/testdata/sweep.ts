const headers = { Authorization: "Bearer STRICT_TOKEN", "Content-Type": "application/json" };
let url: string | null = "https://c.wild.test/tickets?state=stale";
const ids: number[] = [];
while (url) {
  const r: Response = await fetch(url, { headers });
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
  for (const t of await r.json()) ids.push(t.id);
  url = r.headers.get("link")?.match(/<([^>]+)>; rel="next"/)?.[1] ?? null;
}
for (const id of ids) {
  const r = await fetch(`https://c.wild.test/tickets/${id}`, { method: "PATCH", headers, body: JSON.stringify({ state: "closed" }) });
  if (!r.ok) throw new Error(`${r.status} ${await r.text()}`);
}
console.log("closed", ids.length);
