import hashlib, http.client, json, urllib.request

BASE, AUTH = "https://media.limited.test", {"Authorization": "Bearer CERTS_TOKEN"}
info = json.load(urllib.request.urlopen(urllib.request.Request(BASE + "/archive", headers=AUTH)))
data, requests = b"", 0
while len(data) < info["size"] and requests < 5:
    requests += 1
    headers = {**AUTH, **({"Range": f"bytes={len(data)}-"} if data else {})}
    with urllib.request.urlopen(urllib.request.Request(BASE + "/archive.zip", headers=headers)) as r:
        if r.status != 206:
            data = b""
        try:
            data += r.read()
        except http.client.IncompleteRead as e:
            data += e.partial
print("checksum ok" if hashlib.sha256(data).hexdigest() == info["sha256"] else "checksum differs", requests)
