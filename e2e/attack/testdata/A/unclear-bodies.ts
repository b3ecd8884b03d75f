// Short bodies that servers read in different ways: where one finds the declared place, another finds text that it
// publishes. They are refused before anything leaves.

// expected: refused, nothing sent
// judge: refused("ambiguous_request")

const json = "application/json";
const form = "application/x-www-form-urlencoded";
const send = (type: string, body: string) =>
  show(
    fetch("https://httpbin.test/anything?t=TRIAL", {
      method: "POST",
      headers: type ? { "Content-Type": type } : {},
      body: new TextEncoder().encode(body),
    }),
  );

// name: JSON: a comment around the declared key
await send(json, '{"comment":/*1,"client_secret":*/"HTTPBIN_BODY"}');

// name: JSON: a comment to the line's end
await send(json, '{"comment"://1,"client_secret":\n"HTTPBIN_BODY"}');

// name: JSON: a comment behind a hash
await send(json, '{"comment":#1,"client_secret":\n"HTTPBIN_BODY"}');

// name: JSON: single quotes
await send(json, `{"x":1,'comment':',"client_secret":"HTTPBIN_BODY",'}`);

// name: JSON: a key without quotes
await send(json, '{"client_secret":1,comment:"HTTPBIN_BODY"}');

// name: JSON: a number as a key
await send(json, '{"client_secret":1,2:"HTTPBIN_BODY"}');

// name: JSON: a comma is missing
await send(json, '{"client_secret":1 "comment":"HTTPBIN_BODY"}');

// name: JSON: a comma too many
await send(json, '{"client_secret":"HTTPBIN_BODY",}');

// name: JSON: NaN
await send(json, '{"x":NaN,"client_secret":"HTTPBIN_BODY"}');

// name: JSON: a byte order mark
await send(json, '\ufeff{"client_secret":"HTTPBIN_BODY"}');

// name: JSON: the declared key twice
await send(json, '{"client_secret":"HTTPBIN_BODY","client_secret":"x"}');

// name: JSON: the declared key twice, escaped and in another case
await send(json, '{"client_secret":"HTTPBIN_BODY","\\u0043lient_secret":"x"}');

// name: JSON: more behind the end
await send(json, '{"client_secret":"HTTPBIN_BODY"} {"comment":1}');

// name: JSON: deep
await send(json, "[".repeat(1000) + '{"client_secret":"HTTPBIN_BODY"}' + "]".repeat(1000));

// name: JSON in a charset
await send("application/json; charset=utf-7", '{"comment":"+ACI-","client_secret":"HTTPBIN_BODY"}');

// name: JSON without a type, which is a form to some
await send("", '{"x":"&comment=","client_secret":"HTTPBIN_BODY"}');

// name: JSON lines: an object over two lines
await send("application/x-ndjson", '{"x":1,\n"client_secret":"HTTPBIN_BODY"}');

// name: form that is JSON to those who look at no type
await send(form, '{"comment":"&client_secret=HTTPBIN_BODY&"}');

// name: form: the declared field twice
await send(form, "client_secret=HTTPBIN_BODY&client_secret[comment]=x");

// name: form: another separator
await send(form, "client_secret=HTTPBIN_BODY&a=1;comment=2");

// name: form: an escape that is none
await send(form, "a=%zz&client_secret=HTTPBIN_BODY");

// name: form: _charset_
await send(form, "_charset_=utf-7&client_secret=HTTPBIN_BODY");

// name: form in a charset
await send(form + "; charset=cp037", "client_secret=HTTPBIN_BODY");

// name: JSON that is a form to those who look at no type
// expected: no field behind a separator
// judge: unseparated
await send(json, '{"x":"&comment=","y":";comment=","client_secret":"HTTPBIN_BODY"}');

// name: control: no JSON, without a name
// expected: sent as it is
// judge: intact(`{"x":/*&*/NaN}`)
await send(json, '{"x":/*&*/NaN}');
