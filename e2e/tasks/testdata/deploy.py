import http.client, json

c = http.client.HTTPSConnection("deploys.limited.test")
c.request("GET", "/deploys/d-17/events", headers={"Authorization": "Bearer SHARED_B_TOKEN", "Accept": "text/event-stream"})
r = c.getresponse()
if r.status != 200:
    raise SystemExit(f"{r.status} {r.read().decode()}")
data = []
for raw in r:
    line = raw.decode().rstrip("\r\n")
    if line.startswith("data:"):
        data.append(line[5:].strip())
    if line or not data:
        continue
    step = json.loads("\n".join(data))
    data = []
    if step["state"] == "failed":
        print("first failure:", step["step"], step["message"])
        break
c.close()
