import json, time, urllib.error, urllib.request

def get(after=None):
    url = "https://b.wild.test/v1/invoices?status=open&page-size=10"
    if after:
        url += "&starting_after=" + after
    for attempt in range(6):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer OTHER_TOKEN"})) as r:
                return json.load(r)
        except urllib.error.HTTPError as e:
            if e.code != 429 and e.code < 500:
                raise
            time.sleep(float(e.headers.get("Retry-After") or 0.2 * 2 ** attempt))
    raise SystemExit("gave up after 6 attempts: " + url)

sums, n, after = {}, 0, None
while True:
    page = get(after)
    for i in page["data"]:
        sums[i["currency"]] = sums.get(i["currency"], 0) + i["amount_cents"]
        n += 1
    if not page["has_more"]:
        break
    after = page["data"][-1]["id"]
print(n, sums["EUR"], sums["USD"])
