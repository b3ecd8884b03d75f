// Drives every tool, resource and prompt with the TypeScript SDK, then once more after the server was restarted.
//   node client.cjs URL v1|v2|v2-auto
// It prints one JSON line after each of the two, and waits for a line on stdin between them.
const [url, kind] = process.argv.slice(2);
const v1 = kind === "v1";
const { Client } = v1 ? require("@modelcontextprotocol/sdk/client/index.js") : require("@modelcontextprotocol/client");
const { StreamableHTTPClientTransport } = v1 ? require("@modelcontextprotocol/sdk/client/streamableHttp.js") : require("@modelcontextprotocol/client");

async function connect() {
  const client = new Client({ name: "driver", version: "1" }, kind === "v2-auto" ? { versionNegotiation: { mode: "auto" } } : {});
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

async function drive(client) {
  const call = async (name, args, options) => {
    const res = v1 ? await client.callTool({ name, arguments: args }, undefined, options) : await client.callTool({ name, arguments: args }, options);
    return (res.isError ? "ERROR " : "") + res.content.map((c) => c.text).join("|");
  };
  const out = {};
  out.tools = (await client.listTools()).tools.map((t) => t.name).join(",");
  out.apis = await call("list_apis", {});
  out.instructions = (await call("get_instructions", {})).slice(0, 22);
  const progress = [];
  out.run = await call("execute_code", { code: "slow" }, { onprogress: (p) => progress.push(p.message) });
  out.progress = progress[0]; // the second half is told too if the end comes late
  out.mistake = (await call("execute_code", { cod: "x" })).includes("did you mean");
  out.write = await call("execute_code", { code: "write:/skills/made.ts" });
  out.update = await call("update_skill", { name: "made", patch: "<<<<<<< SEARCH\nexport const n = 1;\n=======\nexport const n = 2;\n>>>>>>> REPLACE" });
  out.resources = (await client.listResources()).resources.some((r) => r.uri === "skill://made");
  out.templates = (await client.listResourceTemplates()).resourceTemplates.length;
  out.read = (await client.readResource({ uri: "skill://made" })).contents[0].text.includes("export const n = 2;");
  out.prompts = (await client.listPrompts()).prompts.map((p) => p.name).join(",");
  out.prompt = (await client.getPrompt({ name: "run_skill", arguments: { name: "made" } })).messages[0].content.text.includes("Use the skill made");
  out.complete = (await client.complete({ ref: { type: "ref/prompt", name: "run_skill" }, argument: { name: "name", value: "mad" } })).completion.values.join(",");
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 200);
  out.cancel = await call("execute_code", { code: "forever" }, { signal: abort.signal }).then(() => "finished", () => "cancelled");
  out.delete = await call("delete_skill", { name: "made" });
  return out;
}

async function main() {
  let client = await connect();
  console.log(JSON.stringify(await drive(client)));
  await new Promise((done) => process.stdin.once("data", done));
  let recovered = "by itself";
  try {
    await client.listTools();
  } catch {
    recovered = "by connecting again"; // 404: the session is unknown
    client = await connect();
  }
  console.log(JSON.stringify({ ...(await drive(client)), recovered }));
  await client.close();
  process.exit(0);
}
main().catch((e) => {
  console.log(JSON.stringify({ error: String(e && e.stack || e) }));
  process.exit(1);
});
