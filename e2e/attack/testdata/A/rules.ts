// Requests that no rule of an API permits: nothing below /anything/admin, refunds of at most 5000, GraphQL queries, and
// GET of everything else below /anything.

// expected: refused, nothing sent
// judge: refused()

const url = "https://d.wild.test/anything/";
const json = { "Content-Type": "application/json" };
const form = { "Content-Type": "application/x-www-form-urlencoded" };

// name: no rule permits it: {why}
// each: request | why
//   GET /anything/admin/users | a path that a rule refuses
//   GET /anything/Admin/users | a path in another case
//   GET /anything/%61dmin/users | a path, escaped
//   GET /anything/admin.json | a path with a format
//   GET /anything/admin%20/users | a path with a space
//   GET /anything/x/../admin | a step to the parent
//   GET /anything/x/%2e%2e/admin | the same, escaped
//   GET /anything/%252e%252e/x | escaped twice
//   GET /anything//admin | an empty segment
//   GET /anything%2fadmin | an escaped separator
//   GET /anything/;x/admin | a parameter of a segment
//   GET /other | a path of no rule
//   DELETE /anything/items | a method of no rule
//   POST /anything/items | another method of no rule
//   POST /anything/refunds | a refund of everything
await raw(
  "d.wild.test",
  "d.wild.test",
  "{request}?t=TRIAL HTTP/1.1\r\nHost: d.wild.test\r\nAuthorization: Bearer RULED_TOKEN\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
);

// name: no rule permits it: a path in {header}
// each: header = X-Original-URL X-Rewrite-URL X-Forwarded-Path X-Amz-Copy-Source X-Copy-From Destination
await show(
  fetch(url + "items?t=TRIAL", auth("RULED_TOKEN", { headers: { "{header}": "/anything/admin" } })),
);

// name: a refund that no rule permits: {why}
// each: body | why
//   {"amount":5001} | above the bound
//   {"amount":"5001"} | above the bound, as a string
//   {"amount":1e9} | in another notation
//   {"amount":[9999]} | in a list
//   {"amount":1,"amount":9999} | the amount twice
//   {"amount":1,"Amount":9999} | the amount again, in another case
//   {"amount":1,"\u0061mount":9999} | the amount again, escaped
//   {"amount":null} | no amount
await show(
  fetch(url + "refunds?t=TRIAL", auth("RULED_TOKEN", { method: "POST", headers: json, body: String.raw`{body}` })),
);

// name: a refund by a form that no rule permits: {why}
// each: body | why
//   amount=5001 | above the bound
//   amount=1&amount=9999 | the amount twice
//   amount=1&amount[]=9999 | the amount again, in a list
//   amount=1;amount=9999 | the amount again, behind a semicolon
await show(
  fetch(url + "refunds?t=TRIAL", auth("RULED_TOKEN", { method: "POST", headers: form, body: "{body}" })),
);

// name: a refund that no rule permits: the amount in the URL too
await show(
  fetch(
    url + "refunds?t=TRIAL&amount=9999",
    auth("RULED_TOKEN", { method: "POST", headers: json, body: '{"amount":1}' }),
  ),
);

// name: a refund that no rule permits: 256 KiB before the amount
await show(
  fetch(
    url + "refunds?t=TRIAL",
    auth("RULED_TOKEN", {
      method: "POST",
      headers: json,
      body: JSON.stringify({ note: "x".repeat(256 << 10), amount: 9999 }),
    }),
  ),
);

// name: no rule permits a mutation: {why}
// each: body | why
//   {"query":"mutation { drop }"} | alone
//   {"query":"query A { a } mutation B { drop }","operationName":"A"} | beside a query
//   [{"query":"{ a }"},{"query":"mutation { drop }"}] | in a batch
//   {"query":"# query\nmutation { drop }"} | behind a comment
//   {"query":"{ a }","Query":"mutation { drop }"} | under the same name in another case
//   {"extensions":{"persistedQuery":{"sha256Hash":"x"}}} | that the server alone knows
await show(
  fetch(url + "graphql?t=TRIAL", auth("RULED_TOKEN", { method: "POST", headers: json, body: String.raw`{body}` })),
);

// name: no rule permits a mutation: in the URL
await show(fetch(url + "graphql?t=TRIAL&query=mutation%7Bdrop%7D", auth("RULED_TOKEN", { method: "POST" })));

// name: a request that waits for a person: {why}
// each: path | body | why
//   held | x | as it is
//   Held | x | a path in another case
//   %68eld/x | x | a path, escaped
//   held.json | x | a path with a format
//   held | \xff | a body that cannot be shown
await show(
  fetch(
    url + "{path}?t=TRIAL",
    auth("RULED_TOKEN", {
      method: "POST",
      body: Uint8Array.from("{body}", (c) => c.charCodeAt(0)),
      signal: AbortSignal.timeout(2000),
    }),
  ),
);

// name: what is more than a limit: {why}
// each: body | why
//   {"amount":101} | in one request
//   {"amount":"101"} | as a string
//   {"amount":-1} | an amount that would give some back
//   {} | no amount
await show(
  fetch(url + "limited?t=TRIAL", auth("RULED_TOKEN", { method: "POST", headers: json, body: String.raw`{body}` })),
);

// name: control: what a rule permits, {what}
// each: path | body | what
//   items | - | GET
//   refunds | {"amount":5000} | a refund
//   graphql | {"query":"{ me { name } }"} | a query
// expected: swapped
// judge: swapped("RULED_TOKEN")
const body = String.raw`{body}`;
const sent = body === "-" ? {} : { method: "POST", headers: json, body };
await show(fetch(url + "{path}?t=TRIAL", auth("RULED_TOKEN", sent)));
