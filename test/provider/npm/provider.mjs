// SPDX-License-Identifier: Apache-2.0

// An OpenID provider for tests: npm's oidc-provider, which is certified, with one person, test-user2,
// and groups that a file gives them. It prints its issuer, and ends with its standard input.
//
//	node provider.mjs CALLBACK GROUPS
//
// GROUPS is what ../main.go reads, of which this takes the groups of id2.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [callback, groups] = process.argv.slice(2);
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "caisson", client_secret: "secret of caisson", redirect_uris: [callback] }],
    claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
    scopes: ["openid", "profile", "groups"],
    findAccount: (_, name) => ({
      accountId: name,
      claims: () => ({ sub: name, preferred_username: name, groups: JSON.parse(readFileSync(groups, "utf8"))?.id2 }),
    }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
process.stdin.on("end", () => process.exit(0)).resume();
