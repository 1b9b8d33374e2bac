// An OpenID issuer for tests: issuer.js PORT CALLBACK. Its people log in with any password; their groups follow from their names.
// SPDX-License-Identifier: BSD-3-Clause
import Provider from "oidc-provider";

const [port, callback] = process.argv.slice(2);
const GROUPS = { eva: ["hpc", "cfd-leads"], bob: ["hpc"], mallory: [] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: "monitor", client_secret: "a secret of the site", redirect_uris: [callback] }],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
  cookies: { keys: ["a test"] },
  features: { devInteractions: { enabled: true } },
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: GROUPS[id] ?? [] }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("it listens"));
