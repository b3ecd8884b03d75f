// An MCP server with a login, on the unix socket argv[3], at the address argv[2]: the SDK's authorization router with
// discovery, registration and PKCE, and its example's provider, which gets what it lacks: refresh tokens that are good
// once. It prints what it issues, one line each. POST /revoke ends all access tokens.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import express from "express";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { mcpAuthRouter } from "@modelcontextprotocol/sdk/server/auth/router.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { InvalidGrantError, InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { DemoInMemoryAuthProvider } from "@modelcontextprotocol/sdk/examples/server/demoInMemoryOAuthProvider.js";
import { z } from "zod";

const [origin, socket] = process.argv.slice(2);
const resource = new URL("/mcp", origin);

class AuthProvider extends DemoInMemoryAuthProvider {
  refreshing = new Map(); // clients by refresh token
  issue(client, answer) {
    const refresh_token = randomUUID();
    this.refreshing.set(refresh_token, client.client_id);
    console.log("access_token " + answer.access_token);
    console.log("refresh_token " + refresh_token);
    return { ...answer, refresh_token };
  }
  async authorize(client, params, res) {
    console.log("registered " + client.client_name + " " + client.token_endpoint_auth_method);
    console.log("asked " + params.resource + " " + (params.scopes ?? []).join(","));
    return await super.authorize(client, params, res);
  }
  async exchangeAuthorizationCode(client, ...rest) {
    return this.issue(client, await super.exchangeAuthorizationCode(client, ...rest));
  }
  async exchangeRefreshToken(client, token, _scopes, asked) {
    if (this.refreshing.get(token) !== client.client_id || String(asked) !== resource.href) throw new InvalidGrantError("unknown refresh token");
    this.refreshing.delete(token);
    const access_token = randomUUID();
    this.tokens.set(access_token, { token: access_token, clientId: client.client_id, scopes: ["mcp:tools"], expiresAt: Date.now() + 3600000, resource: asked });
    return this.issue(client, { access_token, token_type: "bearer", expires_in: 3600 });
  }
  async verifyAccessToken(token) {
    try {
      return await super.verifyAccessToken(token);
    } catch {
      throw new InvalidTokenError("ended");
    }
  }
}

const provider = new AuthProvider((r) => r?.href === resource.href);
const app = express();
app.set("trust proxy", 1);
app.use(express.json());
app.post("/revoke", (_, res) => {
  provider.tokens.clear();
  res.end("ok");
});
app.use(mcpAuthRouter({ provider, issuerUrl: new URL(origin), resourceServerUrl: resource, scopesSupported: ["mcp:tools"] }));
const metadata = new URL("/.well-known/oauth-protected-resource/mcp", origin).href;
app.all("/mcp", requireBearerAuth({ verifier: provider, requiredScopes: ["mcp:tools"], resourceMetadataUrl: metadata }), async (req, res) => {
  const server = new McpServer({ name: "guarded", version: "1.0.0" });
  server.registerTool("whoami", { description: "Who the user is", inputSchema: { echo: z.boolean().optional() } }, (args) => ({
    content: [{ type: "text", text: "the server knows you" + (args.echo ? ", with " + req.headers.authorization : "") }],
  }));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  res.on("close", () => void transport.close());
  await server.connect(transport);
  await transport.handleRequest(req, res, req.body);
});
createServer(app).listen(socket, () => console.log("ready -"));
