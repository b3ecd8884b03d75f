// An OpenID provider that is certified as such, as the issuer argv[2], on the unix socket argv[3]. Its access tokens are for
// the server that the client names, in the format argv[4], jwt or opaque. Any client may register. A user has the name that
// they enter. The client "forge" may ask about tokens. GET /mint makes a token for a user and a server.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [issuer, socket, format] = process.argv.slice(2);
const provider = new Provider(issuer, {
  scopes: ["openid", "offline_access"],
  clients: [{ client_id: "forge", client_secret: "secret of the forge", grant_types: [], redirect_uris: [], response_types: [] }],
  features: {
    introspection: { enabled: true },
    revocation: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({ scope: "openid", audience: resource, accessTokenTTL: 600, accessTokenFormat: format }),
    },
  },
  clientBasedCORS: () => true,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  pkce: { required: () => true },
  cookies: { keys: ["not a secret"] },
});
provider.proxy = true;
provider.on("server_error", (_, e) => console.error("server_error", e));
provider.on("grant.error", (_, e) => console.error("grant.error", e.message, e.error_description));
provider.on("registration_create.error", (_, e) => console.error("registration.error", e.message, e.error_description));
provider.on("authorization.error", (_, e) => console.error("authorization.error", e.message, e.error_description));
const serve = provider.callback();
createServer(async (req, res) => {
  if (!req.url.startsWith("/mint?")) return serve(req, res);
  const { user, resource, kind, seconds } = Object.fromEntries(new URL(req.url, issuer).searchParams);
  const grant = new provider.Grant({ accountId: user, clientId: "forge" });
  grant.addResourceScope(resource, "openid");
  const token = new provider[kind]({
    accountId: user, client: await provider.Client.find("forge"), grantId: await grant.save(), scope: "openid", expiresIn: Number(seconds),
    gty: "authorization_code", resource,
  });
  if (kind === "AccessToken") token.resourceServer = new provider.ResourceServer(resource, { scope: "openid", audience: resource, accessTokenFormat: format });
  res.end(await token.save());
}).listen(socket, () => console.log("ready"));
