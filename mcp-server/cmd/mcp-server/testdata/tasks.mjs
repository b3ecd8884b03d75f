// Drives tasks with the TypeScript SDK's client of revision 2025-11-25, and once more after the server was restarted.
//   node tasks.mjs URL
// It prints one JSON line after each of the two, and waits for a line on stdin between them.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";

async function connect() {
  const client = new Client({ name: "driver", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
  await client.listTools(); // the SDK learns here which tools run as tasks
  return { client, tasks: client.experimental.tasks };
}

// call returns the types of the messages, and the text of the last one.
async function call({ tasks }, name, args, options) {
  const seen = [];
  for await (const m of tasks.callToolStream({ name, arguments: args }, undefined, options)) {
    if (seen.at(-1) !== m.type) seen.push(m.type);
    if (m.type === "result") return `${seen.join(" ")}: ${m.result.isError ? "ERROR " : ""}${textOf(m.result)}`;
    if (m.type === "error") return `${seen.join(" ")}: ${m.error.message}`;
  }
}

// begin starts a run without an end, and returns its task.
async function begin({ tasks }) {
  for await (const m of tasks.callToolStream({ name: "execute_code", arguments: { code: "forever" } })) return m.task;
}

const textOf = (result) => result.content.map((c) => c.text).join("|");
const failure = (promise) => promise.then(() => "answered", (e) => e.message);

async function main() {
  const out = {};
  let c = await connect();
  out.run = await call(c, "execute_code", { code: "slow" });
  out.failed = await call(c, "execute_code", { code: "fails" });
  out.mistake = await call(c, "execute_code", { cod: "slow" });
  out.other = await call(c, "list_apis", {}, { task: {} });
  const { taskId, ttl } = await begin(c);
  out.ttl = ttl;
  await c.client.close();
  c = await connect();
  out.after = (await c.tasks.getTask(taskId)).status;
  out.listed = (await c.tasks.listTasks()).tasks.some((t) => t.taskId === taskId);
  out.cancel = (await c.tasks.cancelTask(taskId)).status;
  out.result = textOf(await c.tasks.getTaskResult(taskId, CallToolResultSchema));
  out.again = await failure(c.tasks.cancelTask(taskId));
  const second = (await begin(c)).taskId;
  await c.client.callTool({ name: "get_run", arguments: { id: second, cancel: true } });
  out.byTool = (await c.tasks.getTask(second)).status;
  out.unknown = await failure(c.tasks.getTask("raaaaaaaaaaaa"));
  const lost = (await begin(c)).taskId;
  console.log(JSON.stringify(out));
  await new Promise((done) => process.stdin.once("data", done));
  const state = (await c.tasks.getTask(lost)).status;
  const listed = (await c.tasks.listTasks()).tasks.length;
  console.log(JSON.stringify({ state, listed, result: textOf(await c.tasks.getTaskResult(lost, CallToolResultSchema)) }));
  await c.client.close();
}
main().catch((e) => console.log(JSON.stringify({ error: String(e?.stack ?? e) }))).finally(() => process.exit());
