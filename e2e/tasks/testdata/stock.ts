const items: any[] = [];
for (let token: string | undefined;;) {
  const page: any = await mcp.stock.list_items({ page_token: token });
  items.push(...page.items);
  token = page.next_page_token;
  if (!token) break;
}
const low = items.filter((i) => i.count < 3);
async function details(sku: string) {
  for (let n = 0;; n++) {
    try {
      return await mcp.stock.get_item({ sku });
    } catch (e) {
      if (!(e instanceof McpError) || n === 3) throw e;
      await new Promise((r) => setTimeout(r, 200));
    }
  }
}
const got = await parallel(low.map((i) => () => details(i.sku)), { limit: 4 });
console.log(items.length, low.length, got.filter((g) => g.status === "fulfilled").length);
const reserved = await parallel(low.map((i) => () => mcp.stock.reserve({ sku: i.sku, count: 1 })), { limit: 4 });
reserved.forEach((r, n) => {
  if (r.status === "rejected") console.log(low[n].sku, r.reason.code, r.reason.message, JSON.stringify(r.reason.structured));
});
const houses = await mcp.stock.$read("stock://warehouses");
console.log(JSON.parse(houses.contents[0].text).map((h: any) => h.city));
