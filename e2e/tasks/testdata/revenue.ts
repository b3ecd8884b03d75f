import { billing } from "/apis/billing.ts";
import { crm } from "/apis/crm.ts";

const country = new Map<string, string>();
for await (const c of crm.pages("GET /customers", { query: { limit: 20 } })) country.set(c.id, c.country);
const sums: Record<string, number> = {};
for await (const i of billing.pages("GET /invoices", { query: { status: "paid", "page-size": 50 } })) {
  if (i.currency !== "EUR") continue;
  const where = country.get(i.customer!) ?? "unknown";
  sums[where] = (sums[where] ?? 0) + i.amount_cents;
}
console.log(country.size, "customers");
for (const [c, cents] of Object.entries(sums).sort((a, b) => b[1] - a[1])) console.log(c, (cents / 100).toFixed(2));
