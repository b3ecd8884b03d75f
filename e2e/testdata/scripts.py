import json, os, sys, tempfile, urllib.error, urllib.parse, urllib.request  # noqa: E401

BASE = "https://httpbin.test"
AUTH = {"Authorization": "Bearer HTTPBIN_TOKEN"}


def call(path, data=None, method=None, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    request = urllib.request.Request(BASE + path, data=data, method=method, headers={**AUTH, **headers})
    with urllib.request.urlopen(request, timeout=60) as r:
        return r.status, r.headers, r.read()


# script: pages until there are no more
from html.parser import HTMLParser


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found.append(dict(attrs)["href"])


todo, seen = ["/links/6/0"], {}
while todo:
    path = todo.pop(0)
    if path not in seen:
        parser = Links()
        parser.feed(call(path)[2].decode())
        seen[path] = len(parser.found)
        todo += parser.found
items = []
for page in range(1, 8):
    args = json.loads(call(f"/anything?page={page}&per_page=30")[2])["args"]
    items += [f"{args['page'][0]}:{n}" for n in range(int(args["per_page"][0]))]
print(seen, len(items), items[-1])

# script: a credential, and who it belongs to
print(call("/bearer")[2].decode())
for path in "/bearer", "/basic-auth/user/passwd", "/hidden-basic-auth/user/passwd", "/status/418":
    try:
        print(path, urllib.request.urlopen(urllib.request.Request(BASE + path)).status)
    except urllib.error.HTTPError as e:
        print(path, e.status, e.headers["WWW-Authenticate"], len(e.read()))

# script: JSON there and back
order = {"lines": [{"sku": f"A-{i}", "n": i, "price": i * 0.1} for i in range(500)], "note": "grüezi 漢字 😀 \u2028 \"quoted\" \\ </script>", "none": None, "deep": [[[[1]]]]}
status, headers, body = call("/post", json.dumps(order).encode(), content_type="application/json")
answer = json.loads(body)
print(status, answer["json"] == order, headers["Content-Type"], json.dumps(answer["json"], ensure_ascii=False, sort_keys=True))
for method in "PUT", "PATCH", "DELETE":
    print(method, json.loads(call("/" + method.lower(), json.dumps(order).encode(), method, content_type="application/json")[2])["json"] == order)

# script: a form with files
import hashlib
import uuid


def multipart(fields, files):
    mark, parts = uuid.uuid4().hex, []
    for name, value in fields.items():
        parts += [f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value.encode() + b"\r\n"]
    for name, (filename, kind, data) in files.items():
        parts += [f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}\r\n\r\n'.encode() + data + b"\r\n"]
    return b"".join(parts) + f"--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"


body, kind = multipart({"title": "Quarter 1", "note": "zwölf\r\nlines"}, {"text": ("a.csv", "text/csv", b"a,b\n1,2\n"), "blob": ("b.bin", "application/octet-stream", bytes(range(256)) * 512)})
answer = json.loads(call("/post", body, content_type=kind)[2])
print(answer["form"], {k: hashlib.sha256(v[0].encode()).hexdigest() for k, v in sorted(answer["files"].items())})
print(json.loads(call("/post", urllib.parse.urlencode({"a": ["1", "2"], "b": "x y&z=ü"}, doseq=True).encode())[2])["form"])

# script: lines as they come
lines = []
with urllib.request.urlopen(urllib.request.Request(BASE + "/stream/40", headers=AUTH)) as r:
    for line in r:
        row = json.loads(line)
        lines.append((row["id"], row["url"]))
print(len(lines), lines[0], lines[-1])
events, event = [], {}
with urllib.request.urlopen(urllib.request.Request(BASE + "/sse?count=8&duration=1s&delay=0s", headers=AUTH)) as r:
    for line in r:
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key:
            event[key] = value
        elif event:
            events.append((event["event"], json.loads(event["data"])["id"]))
            event = {}
print(r.headers["Content-Type"], events)
with urllib.request.urlopen(urllib.request.Request(BASE + "/drip?numbytes=20&duration=1s&delay=0s", headers=AUTH)) as r:
    got = b""
    while part := r.read(1):
        got += part
print(got)

# script: again until it works
import time


class Busy(Exception):
    pass


def again(function, times=4):
    for n in range(times):
        try:
            return function(n)
        except urllib.error.HTTPError as e:
            print("try", n, e.status, e.read())
            if e.status < 500 and e.status != 429:
                raise
            time.sleep(0.01 * 2**n)
    raise Busy(f"after {times} tries")


print(again(lambda n: call(f"/status/{[503, 429, 500, 200][n]}"))[0])
print(again(lambda n: call(f"/unstable?failure_rate=0.5&seed={n + 3}"))[0])
try:
    again(lambda n: call("/status/502"), 2)
except Busy as e:
    print(repr(e))
try:
    again(lambda n: call("/status/404"))
except urllib.error.HTTPError as e:
    print(e)

# script: a table of values
import base64
import csv
import io
import sqlite3
import statistics

rows = [[i, f"name {i}", i * i % 17, "a;b,\"c\"\n" if i % 5 == 0 else ""] for i in range(300)]
text = io.StringIO()
csv.writer(text).writerows([["id", "name", "value", "note"]] + rows)
back = json.loads(call("/post", text.getvalue().encode(), content_type="text/csv")[2])["data"]
back = base64.b64decode(back.partition(";base64,")[2]).decode()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "table.csv")
    with open(path, "w", newline="") as f:
        f.write(back)
    with open(path, newline="") as f:
        table = list(csv.DictReader(f))
db = sqlite3.connect(":memory:")
db.execute("create table t (id integer, name text, value integer, note text)")
db.executemany("insert into t values (:id, :name, :value, :note)", table)
print(back == text.getvalue(), db.execute("select value, count(*), max(id) from t group by value order by 2 desc, 1").fetchall())
print(statistics.fmean(int(r["value"]) for r in table), sum(r["note"] == "a;b,\"c\"\n" for r in table))

# script: many at once by threads
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

lock, order = threading.Lock(), []


def one(i):
    answer = json.loads(call(f"/anything/{i}?n={i}")[2])
    with lock:
        order.append(i)
    return i, answer["args"]["n"][0], answer["method"]


with ThreadPoolExecutor(16) as pool:
    done = sorted(f.result() for f in as_completed([pool.submit(one, i) for i in range(120)]))
print(sorted(order) == list(range(120)), done)

# script: many at once by asyncio
import asyncio


async def one(i, limit):
    async with limit:
        if i % 3 == 0:
            return (await asyncio.to_thread(call, f"/status/{200 + i % 2}"))[0]
        reader, writer = await asyncio.open_connection("httpbin.test", 443, ssl=True)
        writer.write(f"GET /anything?n={i} HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: {AUTH['Authorization']}\r\nConnection: close\r\n\r\n".encode())
        data = await reader.read()
        writer.close()
        head, _, body = data.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            body = body[body.index(b"\r\n") + 2:body.rindex(b"\r\n0\r\n")]
        return json.loads(body)["args"]["n"]


limit = asyncio.Semaphore(10)
async with asyncio.timeout(60):
    print(await asyncio.gather(*(one(i, limit) for i in range(60))))

# script: redirects and cookies
import http.cookiejar

jar = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
opener.addheaders = list(AUTH.items())
with opener.open(BASE + "/cookies/set?session=abc&theme=dark") as r:
    print(r.url, json.load(r))
print(sorted((c.name, c.value, c.path) for c in jar))
for path in "/redirect/5", "/relative-redirect/3", "/redirect-to?url=%2Fanything%3Fa%3D1&status_code=307":
    with opener.open(BASE + path) as r:
        print(r.status, r.url)
try:
    opener.open(BASE + "/redirect/15")
except urllib.error.HTTPError as e:
    print(str(e).splitlines()[0])

# script: a large file in pieces
import hashlib

whole = call("/bytes/3000000?seed=7")[2]
print(len(whole), hashlib.sha256(whole).hexdigest())
pieces = b""
while len(pieces) < 100000:
    status, headers, part = call("/range/100000", Range=f"bytes={len(pieces)}-{min(len(pieces) + 29999, 99999)}")
    if status == 200:  # a server, or a proxy, may send the whole
        pieces = b""
    pieces += part
print(hashlib.sha256(pieces).hexdigest() == hashlib.sha256(call("/range/100000")[2]).hexdigest(), pieces[:26])
with tempfile.NamedTemporaryFile() as f:
    with urllib.request.urlopen(urllib.request.Request(BASE + "/stream-bytes/2000000?seed=9&chunk_size=1000", headers=AUTH)) as r:
        while block := r.read(1 << 16):
            f.write(block)
    f.flush()
    print(os.path.getsize(f.name), hashlib.sha256(open(f.name, "rb").read()).hexdigest())
print(json.loads(call("/put", whole, "PUT", content_type="application/octet-stream")[2])["data"][-64:])

# script: encoded answers
import gzip
import zlib

decoders = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}
for path, coding in {"/gzip": "gzip", "/deflate": "deflate"}.items():
    status, headers, body = call(path, Accept_Encoding=coding)
    print(status, headers["Content-Type"], json.loads(decoders[headers["Content-Encoding"]](body))["url"])
print(call("/encoding/utf8")[2].decode()[:2000])
print(len(call("/html")[2]), call("/robots.txt")[2], call("/base64/aGVsbG8gd8O2cmxk")[2].decode())
for kind in "png", "jpeg", "webp", "svg":
    status, headers, body = call("/image/" + kind)
    print(headers["Content-Type"], len(body), zlib.crc32(body))

# script: XML into a report
import datetime
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Slide:
    title: str
    items: int


root = ET.fromstring(call("/xml")[2])
slides = [Slide(s.findtext("title"), len(s.findall("item"))) for s in root.iter("slide")]
print(root.attrib, [asdict(s) for s in slides], Counter(s.items > 0 for s in slides))
print(json.dumps(json.loads(call("/json")[2]), indent=1, sort_keys=True))
since = datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc)
print(json.loads(call("/anything?" + urllib.parse.urlencode({"since": since.isoformat(), "q": "state:open label:\"bug fix\""}))[2])["args"])

# script: conditional requests
for path, headers in [("/etag/abc", {"If_None_Match": "abc"}), ("/etag/abc", {"If_Match": "other"}), ("/cache", {"If_Modified_Since": "Sat, 01 Jan 2022 00:00:00 GMT"}), ("/etag/abc", {})]:
    try:
        status, got, body = call(path, **headers)
        print(path, status, got["Content-Type"], len(body) > 0)
    except urllib.error.HTTPError as e:
        print(path, e.status, e.read())
print(call("/response-headers?X-One=1&X-One=2&Y=z")[1].get_all("X-One"))
request = urllib.request.Request(BASE + "/anything", headers=AUTH, method="HEAD")
with urllib.request.urlopen(request) as r:
    print(r.status, r.headers["Content-Type"], r.read())

# script: a session of requests
# needs: requests
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

session = requests.Session()
session.headers.update(AUTH)
session.mount("https://", HTTPAdapter(max_retries=Retry(total=2, backoff_factor=0.01, status_forcelist=[503])))
print(session.get(BASE + "/bearer").json(), session.get(BASE + "/cookies/set?a=b").json())
print(session.post(BASE + "/post", files={"f": ("x.txt", b"text")}, data={"a": "1"}).json()["form"])
with session.get(BASE + "/stream/5", stream=True) as r:
    print([json.loads(line)["id"] for line in r.iter_lines()])
try:
    session.get(BASE + "/status/503")
except requests.exceptions.RetryError as e:
    print(type(e).__name__)
try:
    session.get(BASE + "/status/404").raise_for_status()
except requests.HTTPError as e:
    print(e)
print(session.get(BASE + "/gzip").json()["gzipped"], session.get(BASE + "/redirect/3").history)

# script: an async client of httpx
# needs: httpx
import asyncio
import httpx

async with httpx.AsyncClient(base_url=BASE, headers=AUTH) as client:
    answers = await asyncio.gather(*(client.get("/anything", params={"n": i}) for i in range(20)))
    print([a.json()["args"]["n"][0] for a in answers], answers[0].http_version)
    async with client.stream("GET", "/stream/5") as r:
        print([json.loads(line)["id"] async for line in r.aiter_lines()])
    print((await client.post("/post", files={"f": ("x.txt", b"text")})).json()["files"])

# script: a table of pandas
# needs: pandas, requests
import io
import pandas
import requests

rows = [{"day": f"2026-01-{i % 28 + 1:02}", "shop": "abc"[i % 3], "sold": i * 7 % 23} for i in range(200)]
table = pandas.DataFrame(requests.post(BASE + "/post", json=rows, headers=AUTH).json()["json"])
table["day"] = pandas.to_datetime(table["day"])
print(table.groupby("shop")["sold"].agg(["sum", "mean"]).to_string(), table.pivot_table(index="day", columns="shop", values="sold").describe().round(3).to_string())
text = requests.post(BASE + "/post", data=table.to_csv(index=False), headers={**AUTH, "Content-Type": "text/csv"}).json()["data"]
print(pandas.read_csv(io.StringIO(text)).equals(table.assign(day=table["day"].dt.strftime("%Y-%m-%d"))))
