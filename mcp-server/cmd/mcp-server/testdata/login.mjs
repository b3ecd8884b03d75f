// The official SDK's own OAuth client, unmodified, at the server argv[2]. It prints the address at which the user logs in,
// calls a tool with the token, and again after a refresh.
import { createRequire } from "node:module";
import { createServer } from "node:http";

const require = createRequire(process.env.NODE_PATH + "/");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { UnauthorizedError } = require("@modelcontextprotocol/sdk/client/auth.js");

let code;
const arrived = new Promise((resolve) => (code = resolve));
const server = createServer((req, res) => {
  const answer = new URL(req.url, "http://127.0.0.1").searchParams;
  res.end("logged in");
  if (answer.get("code")) code(answer.get("code"));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const redirect = `http://127.0.0.1:${server.address().port}/callback`;
const saved = {};
const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "Official SDK", redirect_uris: [redirect], token_endpoint_auth_method: "none", application_type: "native",
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
  },
  clientInformation: () => saved.client,
  saveClientInformation: (client) => (saved.client = client),
  tokens: () => saved.tokens,
  saveTokens: (tokens) => (saved.tokens = tokens),
  codeVerifier: () => saved.verifier,
  saveCodeVerifier: (verifier) => (saved.verifier = verifier),
  redirectToAuthorization: (url) => console.log("open " + url),
};
const address = new URL(process.argv[2]);
const connect = async () => {
  const transport = new StreamableHTTPClientTransport(address, { authProvider: provider });
  const client = new Client({ name: "official", version: "1" });
  try {
    await client.connect(transport);
  } catch (e) {
    if (!(e instanceof UnauthorizedError)) throw e;
    await transport.finishAuth(await arrived);
    return connect();
  }
  return client;
};
for (const step of ["login", "refresh"]) {
  const client = await connect();
  const { content } = await client.callTool({ name: "list_apis", arguments: {} });
  console.log(step + " " + content.map((c) => c.text).join(""));
  await client.close();
  if (step === "login") {
    saved.first = saved.tokens;
    saved.tokens = { ...saved.tokens, access_token: "expired" };
  }
}
console.log("renewed " + (saved.tokens.access_token !== saved.first.access_token && saved.tokens.refresh_token !== saved.first.refresh_token));
server.close();
