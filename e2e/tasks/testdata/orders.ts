const late: { id: string; total: number }[] = [];
let cursor: string | undefined;
do {
  const page = await mcp.orders["search-orders"]({ status: "late", ...(cursor ? { cursor } : {}) });
  late.push(...page.orders);
  cursor = page.nextCursor;
} while (cursor);
const big = late.filter((o) => o.total > 100);
const results = await parallel(big.map((o) => () => mcp.orders["refund-order"]({ order: o.id, amount: o.total / 10 })), { limit: 4 });
const failed = results.map((r, i) => r.status === "rejected" ? `${big[i].id}: ${r.reason.code} ${r.reason.text}` : "").filter(Boolean);
const chart = await mcp.orders["draw-chart"]({ status: "late" });
const image = chart.find((b: any) => b.path);
console.log(late.length, big.length, failed.length, image.mimeType, (await Deno.readFile(image.path)).length);
for (const f of failed.slice(0, 2)) console.log(f);
