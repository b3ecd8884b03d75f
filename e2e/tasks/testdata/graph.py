import json, time, urllib.request

def gql(query, **variables):
    for attempt in range(5):
        r = urllib.request.Request("https://graph.limited.test/graphql", json.dumps({"query": query, "variables": variables}).encode(),
                                   {"Authorization": "Bearer DOCUMENTED_TOKEN", "Content-Type": "application/json"})
        with urllib.request.urlopen(r) as f:
            answer = json.load(f)
        errors = answer.get("errors")
        if not errors:
            return answer["data"] if "data" in answer else answer
        if any(e.get("type") == "RATE_LIMITED" for e in errors):
            time.sleep(0.5 * 2 ** attempt)
            continue
        raise RuntimeError(errors)
    raise RuntimeError("rate limited")

old, after = [], None
while True:
    page = gql("query($after: String) { issues(state: OPEN, first: 25, after: $after) { nodes { id ageDays labels } pageInfo { hasNextPage endCursor } } }", after=after)["issues"]
    old += [i["id"] for i in page["nodes"] if i["ageDays"] > 90 and "stale" not in i["labels"]]
    if not page["pageInfo"]["hasNextPage"]:
        break
    after = page["pageInfo"]["endCursor"]
for id in old:
    gql("mutation($issue: ID!, $label: String!) { addLabel(issue: $issue, label: $label) { id labels } }", issue=id, label="stale")
print("labelled", len(old))
