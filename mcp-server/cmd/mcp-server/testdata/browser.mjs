// A user with a keyboard in Chromium (argv[2]), who comes from a page of another site to the login of the server argv[3],
// signs in with argv[4] and approves. It prints what the user reads, and the address to which the browser is led.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [chromium, issuer, secret] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "chromium"));
let landed, login;
const arrived = new Promise((resolve) => (landed = resolve));
const site = createServer((req, res) => {
  res.setHeader("Content-Type", "text/html");
  if (req.url.startsWith("/callback")) landed(req.url + " referrer " + (req.headers.referer ?? "none"));
  res.end(`<a id="link" href="${login}">log in</a><iframe src="${login}"></iframe>`);
});
await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
const redirect = `http://127.0.0.1:${site.address().port}/callback`;
const registered = await fetch(issuer + "/oauth/register", {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ client_name: "Claude", redirect_uris: [redirect] }),
});
login = issuer + "/oauth/authorize?" + new URLSearchParams({
  client_id: (await registered.json()).client_id, redirect_uri: redirect, response_type: "code", state: "s", code_challenge: "c".repeat(43), code_challenge_method: "S256",
});

const browser = spawn(chromium, ["--headless=new", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--remote-debugging-port=0", "--user-data-dir=" + folder, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
const address = await new Promise((resolve) => {
  let text = "";
  browser.stderr.on("data", (data) => {
    const found = (text += data).match(/DevTools listening on (\S+)/);
    if (found) resolve(found[1]);
  });
});
const socket = new WebSocket(address);
await new Promise((resolve) => (socket.onopen = resolve));
const waiting = new Map();
let last = 0;
socket.onmessage = ({ data }) => {
  const m = JSON.parse(data);
  waiting.get(m.id)?.(m.result);
};
const call = (method, params = {}, sessionId) => new Promise((resolve) => {
  waiting.set(++last, resolve);
  socket.send(JSON.stringify({ id: last, method, params, sessionId }));
});
const { targetId } = await call("Target.createTarget", { url: redirect.replace("/callback", "/") });
const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
const evaluate = async (expression) => (await call("Runtime.evaluate", { expression }, sessionId))?.result?.value;
const until = async (expression) => {
  for (;;) {
    const value = await evaluate(expression);
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const press = async (key, code, text) => {
  for (const type of ["keyDown", "keyUp"]) await call("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode: code, ...(type === "keyDown" && text ? { text } : {}) }, sessionId);
};
await until("document.querySelector('#link')?.href");
await evaluate("document.querySelector('#link').click()");
console.log("page " + await until("document.querySelector('#secret') === document.activeElement && document.readyState === 'complete' && document.title"));
console.log("style " + await evaluate("getComputedStyle(document.querySelector('.card')).borderRadius"));
await call("Input.insertText", { text: secret }, sessionId);
await press("Enter", 13, "\r");
console.log("page " + await until("document.querySelector('[value=approve]') && document.readyState === 'complete' && document.title"));
console.log("text " + (await evaluate("document.querySelector('main').innerText")).replaceAll("\n", " "));
await press("Tab", 9);
console.log("focus " + await evaluate("document.activeElement.value"));
await press("Enter", 13, "\r");
console.log("landed " + await arrived);
browser.kill("SIGKILL");
await new Promise((resolve) => browser.on("exit", resolve));
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
process.exit(0);
