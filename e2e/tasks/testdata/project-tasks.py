import json, urllib.request

def call(path, body=None):
    r = urllib.request.Request("https://crm.limited.test" + path, None if body is None else json.dumps(body).encode(),
                               {"Authorization": "Bearer SHARED_A_TOKEN", "Content-Type": "application/json"})
    with urllib.request.urlopen(r) as answer:
        return json.load(answer)

project = next(p for p in call("/projects") if p["name"] == "Migration")
for title in ["Inventory", "Move data", "Switch over"]:
    if title not in project["tasks"]:
        call(f"/projects/{project['id']}/tasks", {"title": title})
print("added to", project["id"])
