// An OpenID provider on a free port of this machine. Its argument is JSON: `audience`, and `clients`, each
// with `id`, `secret`, `email`, `scope` and `algorithm`.
//
// It prints a line of JSON with its issuer and the names of its keys when it listens, and again for each
// line of standard input, which has it change all its keys. It ends when its standard input does.

import { generateKeyPair, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

import { Provider } from 'oidc-provider';

const LIFETIME_S = 600;

const { audience, clients } = JSON.parse(process.argv.at(-1));
const clientsById = new Map(clients.map((client) => [client.id, client]));

// Keeps nothing: what a client is given is a JWT, and there is no other grant.
class NoStore {
  async find() {}
  async findByUid() {}
  async findByUserCode() {}
  async upsert() {}
  async consume() {}
  async destroy() {}
  async revokeByGrantId() {}
}

async function generateKeys() {
  const pair = promisify(generateKeyPair);
  const pairs = {
    RS256: await pair('rsa', { modulusLength: 2048 }),
    ES256: await pair('ec', { namedCurve: 'P-256' }),
  };
  return Object.entries(pairs).map(([alg, { privateKey }]) => (
    { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${randomUUID()}` }
  ));
}

function newProvider(issuer, keys) {
  return new Provider(issuer, {
    adapter: NoStore,
    clients: clients.map((client) => ({
      client_id: client.id,
      client_secret: client.secret,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      scope: client.scope,
    })),
    cookies: { keys: [randomUUID()] },
    jwks: { keys },
    scopes: clients.flatMap((client) => client.scope.split(' ')),
    ttl: { ClientCredentials: LIFETIME_S },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        getResourceServerInfo: (_, resource, client) => {
          const { scope, algorithm } = clientsById.get(client.clientId);
          return {
            audience: resource,
            scope,
            accessTokenFormat: 'jwt',
            jwt: { sign: { alg: algorithm } },
          };
        },
      },
    },
    extraTokenClaims: (_, token) => (
      { email: clientsById.get(token.clientId).email, email_verified: true }
    ),
  });
}

let answer;

// A provider cannot change its keys, so a new one takes its place.
async function changeKeys() {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const keys = await generateKeys();
  answer = newProvider(issuer, keys).callback();
  console.log(JSON.stringify({ issuer, keys: keys.map(({ kid }) => kid) }));
}

const server = createServer((request, response) => answer(request, response));
server.listen(0, '127.0.0.1', async () => {
  await changeKeys();
  for await (const _ of createInterface({ input: process.stdin })) {
    await changeKeys();
  }
  process.exit();
});
