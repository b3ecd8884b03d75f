import asyncio, json


async def details(sku):
    for n in range(4):
        try:
            return await mcp.aio.stock.get_item(sku=sku)
        except McpError:
            if n == 3:
                raise
            await asyncio.sleep(0.2)


async def main():
    items, token = [], None
    while True:
        page = await mcp.aio.stock.list_items(**({"page_token": token} if token else {}))
        items += page["items"]
        token = page.get("next_page_token")
        if not token:
            break
    low = [i for i in items if i["count"] < 3]
    got = await asyncio.gather(*(details(i["sku"]) for i in low))
    print(len(items), len(low), len(got))
    reserved = await asyncio.gather(*(mcp.aio.stock.reserve(sku=i["sku"], count=1) for i in low), return_exceptions=True)
    for i, r in zip(low, reserved):
        if isinstance(r, McpError):
            print(i["sku"], r.code, r.message, json.dumps(r.structured, separators=(",", ":")))
    houses = await mcp.aio.stock["$read"]("stock://warehouses")
    print([h["city"] for h in json.loads(houses["contents"][0]["text"])])


asyncio.run(main())
