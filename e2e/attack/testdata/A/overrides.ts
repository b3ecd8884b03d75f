// Names that some server takes for the method, in each place where one looks for it: as PHP, Rack, qs, ASP.NET,
// Salesforce, OData, Google's APIs, Flask, Catalyst and Alfresco read them. Each program tries many, and none may arrive.
// shared.test restricts DELETE.

// expected: refused, nothing sent whole

const names = [
  "_method",
  ".method",
  "_method\0",
  "_method\0x",
  "_method[",
  "_method[x",
  "_method[]",
  "[_method]",
  "_method]",
  " _method",
  "  .method",
  "data[_method]",
  "_METHOD",
  "__method",
  "$method",
  "_HttpMethod",
  "$httpMethod",
  "_http[method",
  "X-HTTP-Method-Override",
  "x_http_method_override",
  "X.HTTP Method-Override",
  "XHttpMethodOverride",
  "X-HTTP-Method",
  "X-Method-Override",
  "X-HTTP-MethodOverride",
  "__METHOD_OVERRIDE__",
  "x-tunneled-method",
  "alf_method",
  "method",
  "METHOD",
  "httpMethod",
  "http_method",
  "[method]",
];
const url = "https://shared.test/anything?t=TRIAL";
const percent = (s) => [...new TextEncoder().encode(s)].map((b) => "%" + b.toString(16).padStart(2, "0")).join("");
const post = (type, body) =>
  show(fetch(url, auth("SHARED_A_TOKEN", { method: "POST", headers: type ? { "Content-Type": type } : {}, body })));

// name: overrides in the query
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const n of names) {
  await show(
    fetch(url + "&" + encodeURIComponent(n) + "=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })),
  );
}

// name: overrides in the query, every letter escaped
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const n of names) {
  await show(fetch(url + "&" + percent(n) + "=DELETE", auth("SHARED_A_TOKEN", { method: "POST", body: "x" })));
}

// name: overrides in the query, twice escaped
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const n of names) {
  await show(
    fetch(
      url + "&" + encodeURIComponent(percent(n)) + "=DELETE",
      auth("SHARED_A_TOKEN", { method: "POST", body: "x" }),
    ),
  );
}

// name: overrides in a header
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const n of names.filter((n) => /^[-\w.$]+$/.test(n))) {
  await raw(
    "shared.test",
    "shared.test",
    "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\n" + n +
      ": DELETE\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
  );
}

// name: overrides in a form
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const n of names) await post("application/x-www-form-urlencoded", "a=b&" + percent(n) + "=DELETE");

// name: overrides in a form without a type
// judge: nothingWhole("override_unseen")
// seconds: 60
for (const n of names) await post("", new TextEncoder().encode("a=b&" + percent(n) + "=DELETE"));

// name: overrides in JSON
// judge: nothingWhole("override_unseen")
// seconds: 60
for (const n of names) await post("application/json", JSON.stringify({ a: 1, [n]: "DELETE" }));

// name: overrides in what JSON5 takes for JSON
// judge: nothingWhole("ambiguous_request")
// seconds: 60
for (
  const b of [
    "{_method: 'DELETE'}",
    "{'_method': 'DELETE'}",
    '{"a": /*1, "_method": */ "DELETE"}',
    '{"\\x5fmethod": "DELETE"}',
    '{"a": 1, // \n"_method": 1}',
    "\uFEFF{_method:1}",
  ]
) await post("application/json", b);

// name: overrides in a form of another type
// judge: nothingWhole("override_unseen")
// seconds: 60
for (const t of ["text/plain", "application/octet-stream", "*/*"]) {
  for (const b of ["_method=DELETE", "a=b&%5fmethod=DELETE"]) {
    await post(t, b);
  }
}
await post("application/json", JSON.stringify({ a: "&_method=DELETE&" }));

// name: overrides in the query of another address
// judge: nothingWhole("method_restricted")
// seconds: 60
for (const h of ["X-Original-URL", "X-Rewrite-URL"]) {
  await show(fetch(url, auth("SHARED_A_TOKEN", { method: "POST", headers: { [h]: "/x?_method=DELETE" }, body: "x" })));
}

// name: overrides in JSON as text
// judge: nothingWhole("override_unseen")
// seconds: 60
for (const n of names.slice(0, 27)) await post("text/plain", JSON.stringify({ [n]: "DELETE" }));

// name: overrides in a form with parts
// judge: nothingWhole("override_unseen", "ambiguous_request")
// seconds: 60
for (const n of names.filter((n) => !n.includes("\0"))) {
  const f = new FormData();
  f.append("a", "b");
  f.append(n, "DELETE");
  await post("", f);
}

// name: overrides in another multipart type
// judge: nothingWhole("override_unseen")
// seconds: 60
for (
  const h of [
    'Content-Disposition: form-data; name="_method"',
    "Content-ID: <_method>",
    'Content-Disposition: attachment; filename="_method"',
  ]
) {
  for (const t of ["mixed", "related"]) {
    await post("multipart/" + t + "; boundary=bbbb", "--bbbb\r\n" + h + "\r\n\r\nDELETE\r\n--bbbb--\r\n");
  }
}

// name: overrides in parts with two readings
// judge: nothingWhole("ambiguous_request")
// seconds: 60
for (
  const h of [
    "name=\"a\"; name*=utf-8''_method",
    'name*0="_me"; name*1="thod"',
    'name="a"\r\nContent-Disposition: form-data; name="_method"',
    'name="_m\\ethod"',
    'name="_method\0x"',
    'name="a";\r\n name="_method"',
    'name="a"; filename="x; name=_method"',
    "name='_method",
    'name="_method"\r\nContent-Transfer-Encoding: base64',
  ]
) {
  await post(
    "multipart/form-data; boundary=bbbb",
    "--bbbb\r\nContent-Disposition: form-data; " + h + "\r\n\r\nDELETE\r\n--bbbb--\r\n",
  );
}
for (const e of ["\n", "\r"]) {
  await post(
    "multipart/form-data; boundary=bbbb",
    '--bbbb\r\nContent-Disposition: form-data; name="a"\r\n\r\nx' + e +
      '--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n',
  );
}

// name: overrides in parts of what only seems another type
// judge: nothingWhole("ambiguous_request")
// seconds: 60
for (const t of ['text/plain; x="multipart/form-data; boundary=bbbb"', "text/x-multipart; boundary=bbbb"]) {
  await post(t, '--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n');
}

// name: overrides in a charset of its own
// judge: nothingWhole("ambiguous_request")
// seconds: 60
await post("application/x-www-form-urlencoded; charset=cp037", "%6D%94%85%A3%88%96%84=DELETE");
await post("application/x-www-form-urlencoded; charset=utf-7", "+AF8-method=DELETE");
await post("application/json; charset=utf-16", "{}");

// name: overrides behind a boundary within a line
// expected: another boundary
// judge: unknownBoundary("")
// note: Rack takes a boundary in the middle of a line for one.
await post(
  "multipart/form-data; boundary=bbbb",
  '--bbbb\r\nContent-Disposition: form-data; name="a"\r\n\r\nx--bbbb\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--bbbb--\r\n',
);

// name: control: fields named method whose values are none
// expected: arrives
// judge: arrived(4)
{
  await post(
    "application/json",
    '{"jsonrpc":"2.0","method":"tools/call","params":{"code":"fetch(u, {method: \\"DELETE\\"})"}}',
  );
  await post("application/x-www-form-urlencoded", "method=flickr.photos.search&payment_method=DELETE");
  const f = new FormData();
  f.append("method", "bank transfer");
  f.append("file", new Blob(["_method=DELETE"]), "a.txt");
  await post("", f);
  await post(
    "multipart/related; boundary=bbbb",
    "--bbbb\r\nContent-Type: application/json\r\n\r\n{}\r\n--bbbb\r\nContent-Type: text/plain\r\n\r\nx\r\n--bbbb--\r\n",
  );
}
