import hashlib, http.client, json, urllib.parse

size, piece = 1_200_000, 256 * 1024
data = bytes(i * 31 % 251 for i in range(size))
auth = {"Authorization": "Bearer CERTS_TOKEN"}
c = http.client.HTTPSConnection("media.limited.test")
c.request("POST", "/uploads", json.dumps({"name": "data.bin", "size": size}), {**auth, "Content-Type": "application/json"})
r = c.getresponse()
r.read()
path = urllib.parse.urlsplit(r.headers["Location"]).path
for start in range(0, size, piece):
    part = data[start:start + piece]
    c.request("PUT", path, part, {**auth, "Content-Range": f"bytes {start}-{start + len(part) - 1}/{size}"})
    r = c.getresponse()
    text = r.read()
    if r.status not in (308, 201):
        raise SystemExit(f"{r.status} {text.decode()}")
done = json.loads(text)
print(done["size"], "checksum ok" if done["sha256"] == hashlib.sha256(data).hexdigest() else "checksum differs")
