late, cursor = [], None
while True:
    page = mcp.orders.search_orders(status="late", **({"cursor": cursor} if cursor else {}))
    late += page["orders"]
    cursor = page.get("nextCursor")
    if not cursor:
        break
big = [o for o in late if o["total"] > 100]
results = parallel([lambda o=o: mcp.orders.refund_order(order=o["id"], amount=o["total"] / 10) for o in big], limit=4)
failed = [f"{o['id']}: {r.reason.code} {r.reason.text}" for o, r in zip(big, results) if r.status == "rejected"]
image = next(b for b in mcp.orders.draw_chart(status="late") if isinstance(b, dict) and b.get("path"))
with open(image["path"], "rb") as f:
    size = len(f.read())
print(len(late), len(big), len(failed), image["mimeType"], size)
for f in failed[:2]:
    print(f)
