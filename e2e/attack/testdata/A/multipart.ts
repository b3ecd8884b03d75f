// Forms with parts that servers read in different ways, to the place that a credential belongs in or another.

// expected: refused, nothing sent whole
// judge: twoReadings

const secret = 'Content-Disposition: form-data; name="client_secret"';
const comment = 'Content-Disposition: form-data; name="comment"';
const part = (head, content) => "--b\r\n" + head + "\r\n\r\n" + content + "\r\n";
const end = "--b--\r\n";
const url = "https://httpbin.test/anything?t=TRIAL";
const post = (body) =>
  show(fetch(url, { method: "POST", headers: { "Content-Type": "multipart/form-data; boundary=b" }, body }));

// name: multipart: an extended name
await post(part(secret + "; name*=utf-8''comment", "HTTPBIN_BODY") + end);

// name: multipart: an extended name first
await post(part("Content-Disposition: form-data; name*=utf-8''comment; name=\"client_secret\"", "HTTPBIN_BODY") + end);

// name: multipart: a name in pieces
await post(part('Content-Disposition: form-data; name*0="client_"; name*1="secret"', "HTTPBIN_BODY") + end);

// name: multipart: two Content-Dispositions
await post(part(secret + "\r\n" + comment, "HTTPBIN_BODY") + end);

// name: multipart: two Content-Dispositions the other way
await post(part(comment + "\r\n" + secret, "HTTPBIN_BODY") + end);

// name: multipart: two names
await post(part(secret + '; name="comment"', "HTTPBIN_BODY") + end);

// name: multipart: a quoted pair
await post(part('Content-Disposition: form-data; name="client\\_secret"', "HTTPBIN_BODY") + end);

// name: multipart: a name in single quotes
await post(part(secret + "; x='; name=\"comment\"; y='", "HTTPBIN_BODY") + end);

// name: multipart: a parameter that ends with name
await post(part(secret + '; x-name="comment"', "HTTPBIN_BODY") + end);

// name: multipart: a folded head
await post(part('Content-Disposition: form-data;\r\n name="client_secret"', "HTTPBIN_BODY") + end);

// name: multipart: a head that ends with a bare line feed
await post(part(secret + "\nX: y", "HTTPBIN_BODY") + end);

// name: multipart: a transfer encoding
await post(part(secret + "\r\nContent-Transfer-Encoding: quoted-printable", "HTTPBIN_BODY") + end);

// name: multipart: a field in UTF-16
await post(part(secret + "\r\nContent-Type: text/plain; charset=utf-16", "HTTPBIN_BODY") + end);

// name: multipart: two Content-Types in a part
await post(part(secret + "\r\nContent-Type: text/plain\r\nContent-Type: text/html", "HTTPBIN_BODY") + end);

// name: multipart: a field that chooses the charset
await post(part('Content-Disposition: form-data; name="_charset_"', "utf-16") + part(secret, "HTTPBIN_BODY") + end);

// name: multipart: the declared field twice
await post(part(secret, "HTTPBIN_BODY") + part(secret, "x") + end);

// name: multipart: a nested form
await post(
  part(
    comment + "\r\nContent-Type: multipart/mixed; boundary=c",
    "--c\r\n" + secret + "\r\n\r\nHTTPBIN_BODY\r\n--c--",
  ) + end,
);

// name: multipart: a boundary after a bare line feed
await post("--b\r\n" + secret + "\r\n\r\nHTTPBIN_BODY\n--b--\r\n");

// name: multipart: a boundary that goes on
await post("--b\r\n" + comment + "\r\n\r\nx\r\n--bc\r\n\r\n" + part(secret, "HTTPBIN_BODY") + end);

// name: multipart: a space after the boundary
await post("--b \r\n" + secret + "\r\n\r\nHTTPBIN_BODY\r\n--b--\r\n");

// name: multipart: a preamble
await post("x\r\n" + part(secret, "HTTPBIN_BODY") + end);

// name: multipart: an epilogue
await post(part(comment, "x") + end + part(secret, "HTTPBIN_BODY") + end);

// name: multipart: no last boundary
await post(part(secret, "HTTPBIN_BODY"));

// name: multipart: two Content-Dispositions after 400 KiB
await post(part(comment, "x".repeat(400 << 10)) + part(comment + "\r\n" + secret, "HTTPBIN_BODY") + end);

// name: multipart: the type {what}
// each: what | type
//   multipart/form-data; boundary=b; boundary=c | multipart/form-data; boundary=b; boundary=c
//   multipart/form-data; boundary=c; boundary*=utf-8''b | multipart/form-data; boundary=c; boundary*=utf-8''b
//   multipart/form-data; boundary*=utf-8''b | multipart/form-data; boundary*=utf-8''b
//   multipart/form-data; boundary=b, multipart/form-data; boundary=c | multipart/form-data; boundary=b, multipart/form-data; boundary=c
//   multipart/form-data; boundary=b; charset=utf-16 | multipart/form-data; boundary=b; charset=utf-16
//   multipart/form-data | multipart/form-data
//   multipart/form-data; boundary=b and Content-Type: multipart/form-data; boundary=c | multipart/form-data; boundary=b\r\nContent-Type: multipart/form-data; boundary=c
//   text/plain and Content-Type: multipart/form-data; boundary=b | text/plain\r\nContent-Type: multipart/form-data; boundary=b
await raw(
  "httpbin.test",
  "httpbin.test",
  "POST /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nContent-Type: {type}\r\nContent-Length: 82\r\nConnection: close\r\n\r\n" +
    part(secret, "HTTPBIN_BODY") + end,
);

// name: multipart: the author's boundary
// expected: another boundary
// judge: unknownBoundary("HTTPBIN_BODY")
await post(part(comment, "x--b--") + part(secret, "HTTPBIN_BODY") + end);

// name: control: declared field of a FormData
// expected: swapped
// judge: swapped("HTTPBIN_BODY")
{
  const f = new FormData();
  f.append("a", "b");
  f.append("client_secret", "HTTPBIN_BODY");
  f.append("f", new Blob(["x"]), "x.txt");
  await show(fetch("https://httpbin.test/anything?t=TRIAL", { method: "POST", body: f }));
}
