// What Claude Code does with a server, by the SDK that it is built on:  node client.cjs URL CODE
// It says its name and what it can, keeps 2048 characters of the instructions and of each description, asks for progress,
// and takes the text of the result. Prints {tools, instructions, text}.
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const [url, code] = process.argv.slice(2);

(async () => {
  const client = new Client({ name: "claude-code", version: "2.1.228" }, { capabilities: { roots: { listChanged: true }, elicitation: {} } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  const result = await client.callTool({ name: "execute_code", arguments: { code } }, undefined, { onprogress: () => {}, timeout: 120000 });
  console.log(JSON.stringify({
    tools: tools.map((t) => ({ name: t.name, description: t.description.slice(0, 2048), input_schema: t.inputSchema })),
    instructions: (client.getInstructions() ?? "").slice(0, 2048),
    text: result.content.map((c) => c.text).join("\n"),
  }));
  await client.close();
})();
