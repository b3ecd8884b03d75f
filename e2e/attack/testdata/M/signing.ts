// Attempts to get a signature for something else than the request that is sent.

// expected: signed for this host, region and service, now
// judge: signed()

const url = "https://s.wild.test/anything/a?t=TRIAL";
const sdk = (scope: string, more: Record<string, string> = {}, name = "SIGNED_AWS"): RequestInit => ({
  headers: {
    Authorization:
      `AWS4-HMAC-SHA256 Credential=${name}/${scope}/aws4_request, SignedHeaders=host;x-amz-date, Signature=${
        "0".repeat(64)
      }`,
    ...more,
  },
});

// name: control: a signature by name
await show(fetch(url, { headers: { Authorization: "AWS4-HMAC-SHA256 SIGNED_AWS" } }));

// name: control: a signature as an SDK asks for it
await show(fetch(url, sdk("20261123/eu-central-1/s3")));

// name: control: a body is signed as it is sent
await show(fetch(url, { ...sdk("20261123/eu-central-1/s3"), method: "PUT", body: "x".repeat(5000) }));

// name: another region: {region}
// each: region = us-east-1 us-gov-west-1 cn-north-1 * eu-central-1%2Fiam
await show(fetch(url, sdk("20261123/{region}/s3")));

// name: another service: {service}
// each: service = iam sts dynamodb secretsmanager s3-outposts
await show(fetch(url, sdk("20261123/eu-central-1/{service}")));

// name: another day: {day}
// each: day = 19990101 20990101 00000000
await show(fetch(url, sdk("{day}/eu-central-1/s3", { "X-Amz-Date": "{day}T000000Z", Date: "{day}" })));

// name: a session token of the code's own
await show(fetch(url, sdk("20261123/eu-central-1/s3", { "X-Amz-Security-Token": "mine" })));

// name: the hash of another body
await show(
  fetch(url, {
    ...sdk("20261123/eu-central-1/s3", { "X-Amz-Content-Sha256": "0".repeat(64) }),
    method: "PUT",
    body: "mine",
  }),
);

// name: a path that is read in two ways: {path}
// each: path = a%252Fb a/%2e%2e/c a+b a%20b ü
await show(fetch("https://s.wild.test/anything/{path}?t=TRIAL&b=%2B&a=c+d&a-b=&a", sdk("20261123/eu-central-1/s3")));

// name: a presigned address: {query}
// expected: refused, nothing sent
// judge: refused("aws_presigned")
// each: query = X-Amz-Signature=0 x-amz-signature=0 X-Amz-%53ignature=0 X-Amz-Credential=SIGNED_AWS%2F1
await show(fetch(url + "&{query}", sdk("20261123/eu-central-1/s3")));

// name: signed chunks: {kind}
// expected: refused, nothing sent
// judge: refused("aws_chunk_signed")
// each: kind = HMAC-SHA256-PAYLOAD HMAC-SHA256-PAYLOAD-TRAILER ECDSA-P256-SHA256-PAYLOAD
await show(
  fetch(url, {
    ...sdk("20261123/eu-central-1/s3", { "X-Amz-Content-Sha256": "STREAMING-AWS4-{kind}" }),
    method: "PUT",
    body: "x",
  }),
);

// name: another algorithm: {algorithm}
// expected: refused, nothing sent
// judge: refused("not_signable")
// each: algorithm = AWS4-ECDSA-P256-SHA256 AWS4-HMAC-SHA1 AWS4-NONE
await show(fetch(url, { headers: { Authorization: "{algorithm} SIGNED_AWS" } }));

// name: a downgrade to {scheme}
// expected: not signed
// judge: unsigned
// each: scheme = AWS AWS3 Bearer Basic
await show(fetch(url, { headers: { Authorization: "{scheme} SIGNED_AWS:0000" } }));

// name: another host: {host}
// expected: not signed
// judge: unsigned
// each: host = other.test httpbin.test a.wild.test
await show(fetch("https://{host}/anything?t=TRIAL", sdk("20261123/eu-central-1/s3")));

// name: the name in {place}
// expected: not signed
// judge: unsigned
// each: place | init
//   a header for something else | {"headers": {"X-Api-Key": "SIGNED_AWS"}}
//   the session token alone | {"headers": {"X-Amz-Security-Token": "SIGNED_AWS"}}
//   a longer name | {"headers": {"Authorization": "AWS4-HMAC-SHA256 SIGNED_AWS_2"}}
await show(fetch(url, JSON.parse(`{init}`)));

// name: two signatures in one request
// expected: refused, or not signed
// judge: unsigned
await raw(
  "s.wild.test",
  "s.wild.test",
  "GET /anything?t=TRIAL HTTP/1.1\r\nHost: s.wild.test\r\nAuthorization: AWS4-HMAC-SHA256 SIGNED_AWS\r\n" +
    "Authorization: AWS4-HMAC-SHA256 SIGNED_AWS\r\nConnection: close\r\n\r\n",
);

// name: control: an HMAC
// expected: the HMAC of what is sent
// judge: macked
await show(
  fetch(url, { method: "POST", body: "{timestamp}{method}", headers: { "X-Sign": "SIGNED_MAC", "X-Time": "1" } }),
);

// name: an HMAC asked for in {place}
// expected: not signed
// judge: unsigned
// each: place | init
//   the time | {"headers": {"X-Time": "SIGNED_MAC"}}
//   a part of the header | {"headers": {"X-Sign": "v1 SIGNED_MAC"}}
//   the body | {"method": "POST", "body": "SIGNED_MAC"}
await show(fetch(url, JSON.parse(`{init}`)));

// name: the signature, echoed as {form}
// expected: the name in its place
// judge: signatureHidden
// each: form = raw percent-all json-u html-decimal base64 base64-1 base64-2 base64url hex hex-upper
await show(fetch("https://s.wild.test/x/echo?t=TRIAL&what=auth&form={form}", sdk("20261123/eu-central-1/s3")));

// name: the signature, echoed in the place {place}
// expected: the name in its place
// judge: signatureHidden
// each: place = location cookie link headers-many challenge
await show(fetch("https://s.wild.test/x/echo?t=TRIAL&what=auth&place={place}", sdk("20261123/eu-central-1/s3")));

// name: the signature, echoed framed by {frame}
// expected: the name in its place
// judge: signatureHidden
// each: frame = chunk1 chunk7 sse
await show(fetch("https://s.wild.test/x/echo?t=TRIAL&what=auth&frame={frame}", sdk("20261123/eu-central-1/s3")));

// name: the HMAC, echoed as {form}
// expected: the name in its place
// judge: signatureHidden
// each: form = raw base64-1 hex-upper
await show(
  fetch("https://s.wild.test/x/echo?t=TRIAL&what=header:X-Sign&form={form}", { headers: { "X-Sign": "SIGNED_MAC" } }),
);
