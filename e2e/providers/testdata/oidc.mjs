// An OpenID provider that is certified as such, on the unix socket argv[3], as the issuer argv[2]. It prints what it
// issues, one line each: the tests look for it where it must not be. POST /revoke ends all access tokens.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [issuer, socket] = process.argv.slice(2);
const tokens = new Map();
const provider = new Provider(issuer, {
  clients: [{
    client_id: "codeforge",
    client_secret: "inner-canary-of-the-client",
    application_type: "native",
    token_endpoint_auth_method: "client_secret_post",
    grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    redirect_uris: ["http://127.0.0.1/callback"],
    response_types: ["code"],
  }],
  scopes: ["openid", "offline_access", "email"],
  claims: { openid: ["sub"], email: ["email"] },
  features: {
    deviceFlow: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
    userinfo: { enabled: true },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: id + "@example.com" }) }),
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  pkce: { required: () => true },
  cookies: { keys: ["not a secret"] },
  jwks: undefined,
  ttl: { AccessToken: 3600, RefreshToken: 86400, Grant: 86400, Session: 86400, Interaction: 600, DeviceCode: 600 },
});
provider.proxy = true;
for (const kind of ["access_token", "refresh_token"]) {
  provider.on(kind + ".saved", (t) => {
    if (kind === "access_token") tokens.set(t.jti, t);
    console.log(kind + " " + t.jti);
  });
}
provider.on("server_error", (_, e) => console.error("server_error", e));
provider.on("grant.error", (ctx, e) => console.log("refused " + e.error + " " + (ctx.oidc.params?.grant_type ?? "")));
const callback = provider.callback();
createServer(async (req, res) => {
  if (req.method === "POST" && req.url === "/revoke") {
    for (const t of tokens.values()) await t.destroy();
    tokens.clear();
    res.end("ok");
    return;
  }
  callback(req, res);
}).listen(socket, () => console.log("ready -"));
