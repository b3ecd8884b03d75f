// Attempts to spend a limit twice. Each has an API of its own: three writes a day, and 100 a day of what /anything/pay pays.

// expected: no more than the limit sent

const at = "https://";
/** post sends one write, and says how it ended. */
const post = (host: string, path = "/anything/x", body = "1", init: RequestInit = {}) =>
  fetch(at + host + path + "?t=TRIAL", {
    method: "POST",
    body,
    headers: { "Content-Type": "application/json" },
    ...init,
  }).then(async (r) => (await r.text(), r.status), (e) => e.name);
/** announce sends the head of a write, and waits for what the proxy says to it. */
async function announce(host: string, path: string, length: number) {
  const tcp = await Deno.connect({ hostname: host, port: 443 });
  const conn = await Deno.startTls(tcp, { hostname: host });
  const head = `POST ${path}?t=TRIAL HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${length}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`;
  await conn.write(new TextEncoder().encode(head));
  const buf = new Uint8Array(4096);
  const timer = setTimeout(() => conn.close(), 8000);
  const n = await conn.read(buf).catch(() => null);
  clearTimeout(timer);
  return { conn, said: new TextDecoder().decode(buf.subarray(0, n ?? 0)).slice(9, 12) };
}
const close = (conn: Deno.Conn) => {
  try {
    conn.close();
  } catch { /* closed */ }
};
/** finish sends the body of an announced write, and says which status it got. */
async function finish({ conn, said }: { conn: Deno.Conn; said: string }, body: string) {
  if (said !== "100") return close(conn), Number(said);
  await conn.write(new TextEncoder().encode(body)).catch(() => 0);
  return Number(/HTTP\/1\.1 (\d+)/.exec(await readAll(conn, 8000))?.[1]);
}
const tell = (statuses: unknown[]) => out({ status: statuses.includes(200) ? 200 : 429, statuses });
const several = <T>(n: number, f: (i: number) => Promise<T>) => Promise.all(Array.from({ length: n }, (_, i) => f(i)));

// name: a limit spent twice: 40 writes at once
// judge: arrived(3)
tell(await several(40, () => post("parallel.limited.test")));

// name: a limit spent twice: payments at once
// judge: arrived(2)
tell(await several(20, (i) => post("sums.limited.test", "/anything/pay", `{"amount":40,"i":${i}}`)));

// name: a limit spent twice: a write that is announced and aborted, then others
// judge: within(3)
for (let i = 0; i < 20; i++) close((await announce("aborted.limited.test", "/anything/x", 4)).conn);
tell(await several(10, () => post("aborted.limited.test")));

// name: a limit spent twice: a payment that is announced and aborted, then others
// judge: arrived(2)
for (let i = 0; i < 20; i++) close((await announce("unpaid.limited.test", "/anything/pay", 13)).conn);
const paid = [];
for (let i = 0; i < 5; i++) paid.push(await post("unpaid.limited.test", "/anything/pay", `{"amount":40}`));
tell(paid);

// name: a limit spent twice: {what} announced at once, then sent at once
// each: label | place | sent | most | what
//   announced | /anything/x | 1234 | 3 | writes
//   promised | /anything/pay | {"amount":40} | 2 | payments
// judge: arrived({most})
const body = String.raw`{sent}`;
const announced = await several(20, () => announce("{label}.limited.test", "{place}", body.length));
const ends = await several(20, (i) => finish(announced[i], body));
tell([...ends, "after", ...announced.map((a) => a.said)]);

// name: a limit spent twice: writes whose bodies break off, then others
// judge: within(3)
for (let i = 0; i < 20; i++) {
  const { conn } = await announce("broken.limited.test", "/anything/x", 4);
  await conn.write(new TextEncoder().encode("12")).catch(() => 0);
  close(conn);
}
tell(await several(10, () => post("broken.limited.test")));

// name: a limit spent twice: writes whose answers nobody waits for
// judge: within(3)
const signal = () => AbortSignal.timeout(500);
for (let i = 0; i < 3; i++) await post("unwaited.limited.test", "/delay/3", "1", { signal: signal() });
tell(await several(10, () => post("unwaited.limited.test", "/anything/x")));

// name: control: a limit is spent once, whole
// expected: as many as the limit
// judge: arrived(3)
tell([await post("calm.limited.test"), await post("calm.limited.test"), await post("calm.limited.test")]);

// name: control: announced writes within the limit
// expected: as many as the limit
// judge: arrived(3)
const fit = await several(3, () => announce("fitting.limited.test", "/anything/x", 4));
tell(await several(3, (i) => finish(fit[i], "1234")));
