// What a client does with a run that outlives its calls, by the official SDK with its default timeout of 60 s:
//   node longrun.cjs run SECONDS TRANSPORT...    a run of that many seconds, picked up by a second client
//   node longrun.cjs cancel TRANSPORT...         a run without an end, cancelled by a second client
//   node longrun.cjs task SECONDS TRANSPORT...   the same two as tasks
//   node longrun.cjs canceltask TRANSPORT...
//   node longrun.cjs leave TRANSPORT...          a run without an end, left alone
//   node longrun.cjs look ID TRANSPORT...        get_run
// TRANSPORT is the URL of the endpoint, or a program with its arguments. Prints one line of JSON: {id, texts, slowest}.
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { CallToolResultSchema } = require("@modelcontextprotocol/sdk/types.js");

const out = { texts: [], slowest: 0 };
const args = process.argv.slice(2), what = args.shift();
const operand = ["run", "look", "task"].includes(what) ? args.shift() : undefined;

async function connect(name) {
  const client = new Client({ name, version: "1" });
  await client.connect(args[0].startsWith("http") ? new StreamableHTTPClientTransport(new URL(args[0]))
    : new StdioClientTransport({ command: args[0], args: args.slice(1), env: process.env }));
  const call = async (tool, input) => {
    const began = Date.now();
    const result = await client.callTool({ name: tool, arguments: input });
    out.slowest = Math.max(out.slowest, Date.now() - began);
    const text = result.content.map((c) => c.text).join("|");
    out.texts.push(text);
    out.id ??= /Run (r\w+): still/.exec(text)?.[1];
    return text;
  };
  return { call, client, tasks: client.experimental.tasks, close: () => client.close() };
}

async function driveTask(first, code) {
  await first.client.listTools();
  for await (const m of first.tasks.callToolStream({ name: "execute_code", arguments: { code } })) {
    out.id = m.task.taskId;
    break;
  }
  await first.close();
  const second = await connect("second");
  if (what === "canceltask") await second.tasks.cancelTask(out.id);
  for (;;) {
    const task = await second.tasks.getTask(out.id);
    if (task.status !== "working") break;
    await new Promise((r) => setTimeout(r, task.pollInterval));
  }
  const result = await second.tasks.getTaskResult(out.id, CallToolResultSchema);
  out.texts.push(result.content.map((c) => c.text).join("|"));
  await second.close();
}

(async () => {
  if (what === "look") {
    const only = await connect("looker");
    await only.call("get_run", { id: operand });
    return await only.close();
  }
  const endless = "console.log('began'); setInterval(() => {}, 1000); await new Promise(() => {});";
  const timed = `for (let i = 0; i < ${operand}; i++) { console.log("second " + i); await new Promise((r) => setTimeout(r, 1000)); }`;
  const first = await connect("first");
  if (what.endsWith("task")) return await driveTask(first, operand ? timed : endless);
  await first.call("execute_code", { code: what === "run" ? timed : endless, background: what === "leave" });
  await first.close();
  if (what === "leave") return;
  const second = await connect("second");
  if (what === "cancel") await second.call("get_run", { id: out.id, cancel: true });
  else while ((await second.call("get_run", { id: out.id })).includes(": still ")) { /* again */ }
  await second.close();
})().catch((e) => (out.error = String(e?.stack ?? e))).finally(() => {
  console.log(JSON.stringify(out));
  process.exit(0);
});
