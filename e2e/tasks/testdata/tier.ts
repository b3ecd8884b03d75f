import { crm } from "/apis/crm.ts";

let changed = 0;
for await (const { id, country } of crm.pages("GET /customers")) {
  if (country !== "DE") continue;
  const etag = (await crm.raw("GET /customers/{id}", { path: { id } })).headers.get("etag")!;
  await crm("PATCH /customers/{id}", { path: { id }, headers: { "If-Match": etag }, body: { tier: "gold" } });
  changed++;
}
console.log("gold:", changed);
