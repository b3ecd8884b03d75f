import json, urllib.request

def post(path, body):
    r = urllib.request.Request("https://crm.limited.test" + path, json.dumps(body).encode(),
                               {"Authorization": "Bearer SHARED_A_TOKEN", "Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(r) as answer:
        return json.load(answer)

project = post("/projects", {"name": "Migration"})
for title in ["Inventory", "Move data", "Switch over"]:
    post(f"/projects/{project['id']}/tasks", {"title": title})
print("made", project["id"])
