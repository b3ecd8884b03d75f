import { billing } from "/apis/billing.ts";

// page repeats a request that the API refuses for the moment.
async function page(after?: string) {
  for (let attempt = 0;; attempt++) {
    try {
      return await billing("GET /invoices", { query: { status: "open", "page-size": 10, starting_after: after } });
    } catch (e) {
      if (attempt === 5 || !(e.status === 429 || e.status >= 500)) throw e;
      await new Promise((done) => setTimeout(done, 200 * 2 ** attempt));
    }
  }
}

const sums: Record<string, number> = {};
let n = 0, after: string | undefined;
for (;;) {
  const { data = [], has_more } = await page(after);
  for (const i of data) {
    sums[i.currency] = (sums[i.currency] ?? 0) + i.amount_cents;
    n++;
  }
  if (!has_more) break;
  after = data.at(-1)!.id;
}
console.log(n, sums.EUR, sums.USD);
