import json, time, urllib.error, urllib.request

BASE, AUTH = "https://crm.limited.test", {"Authorization": "Bearer SHARED_A_TOKEN"}

def call(method, path, body=None, headers={}):
    for attempt in range(6):
        data = None if body is None else json.dumps(body).encode()
        try:
            r = urllib.request.urlopen(urllib.request.Request(BASE + path, data, {**AUTH, "Content-Type": "application/json", **headers}, method=method))
            return json.load(r), r.headers
        except urllib.error.HTTPError as e:
            if e.code not in (429, 503) or attempt == 5:
                raise RuntimeError(f"{method} {path}: {e.code} {e.read().decode()}")
            time.sleep(0.5 * 2 ** attempt)

german, cursor = [], None
while True:
    page, _ = call("GET", "/customers" + (f"?cursor={cursor}" if cursor else ""))
    german += [c["id"] for c in page["customers"] if c["country"] == "DE"]
    cursor = page["next_cursor"]
    if not cursor:
        break
for id in german:
    _, head = call("GET", f"/customers/{id}")
    call("PATCH", f"/customers/{id}", {"tier": "gold"}, {"If-Match": head["ETag"]})
print("gold:", len(german))
