import json, re, urllib.request

HEADERS = {"Authorization": "Bearer STRICT_TOKEN", "Content-Type": "application/json"}


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=HEADERS, data=data)) as r:
        return json.load(r), r.headers


url, ids = "https://c.wild.test/tickets?state=stale", []
while url:
    page, head = call("GET", url)
    ids += [t["id"] for t in page]
    m = re.search(r'<([^>]+)>; rel="next"', head.get("Link") or "")
    url = m.group(1) if m else None
for i in ids:
    call("PATCH", f"https://c.wild.test/tickets/{i}", {"state": "closed"})
print("closed", len(ids))
