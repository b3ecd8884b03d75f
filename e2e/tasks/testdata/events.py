import collections, http.client, json, urllib.request

counts, last, done = collections.Counter(), None, False
for attempt in range(5):
    headers = {"Authorization": "Bearer PLAIN_TOKEN"}
    if last:
        headers["Last-Event-ID"] = last
    c = http.client.HTTPSConnection("d.wild.test")
    c.request("GET", "/events", headers=headers)
    event = {}
    try:
        for raw in c.getresponse():
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(":")
                event.setdefault(name, []).append(value.removeprefix(" "))
                continue
            done = done or event.get("event") == ["done"]
            if "data" in event and not done:
                counts[json.loads("\n".join(event["data"]))["level"]] += 1
                last = event["id"][0]
            event = {}
    except http.client.IncompleteRead:
        pass
    if done:
        break
cities = collections.Counter()
with urllib.request.urlopen(urllib.request.Request("https://d.wild.test/export.ndjson", headers={"Authorization": "Bearer PLAIN_TOKEN"})) as r:
    for line in r:
        cities[json.loads(line)["city"]] += 1
print(counts["error"], counts["info"], counts["warn"], last, cities["東京"], cities["São Paulo"])
