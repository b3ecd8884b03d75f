// An OpenID provider that is certified as such, as the issuer argv[2], on the unix socket argv[3]. Its access tokens are for
// the server that the client names, and JWTs. Any client may register. A user has the name that they enter.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [issuer, socket] = process.argv.slice(2);
const provider = new Provider(issuer, {
  scopes: ["openid", "offline_access"],
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({ scope: "openid", audience: resource, accessTokenTTL: 600, accessTokenFormat: "jwt" }),
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
createServer(provider.callback()).listen(socket, () => console.log("ready"));
