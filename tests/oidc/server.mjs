// An OpenID provider on a free port of this machine. Its argument is JSON: `audience`, and `clients`, each
// with `id`, `secret`, `email`, `scope` and `algorithm`.
//
// It prints a line of JSON with its issuer and the names of its keys when it listens, and again after each line of
// standard input. A line is an order: `rotate` changes all keys, `{"account": {…}}` sets the claims of a person by
// `sub`, and `{"client": {…}}` registers a client by its metadata. The server ends when its standard input does.
//
// A browser that must sign in opens `/interaction/UID` with the person as `login`.

import { generateKeyPair, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

import { Provider } from 'oidc-provider';

const LIFETIME_S = 600;

// Standard output has only the answers to orders, without the notices of the library.
console.info = () => {};

const { audience, clients } = JSON.parse(process.argv.at(-1));
const clientsById = new Map(clients.map((client) => [client.id, client]));

const accounts = new Map();
const stored = new Map();

// Keeps everything, also across changes of keys.
class Store {
  constructor(model) { this.model = model; }
  key(id) { return `${this.model}:${id}`; }
  async find(id) { return stored.get(this.key(id)); }
  async findByUid(uid) {
    return [...stored].find(([key, value]) => key.startsWith('Session:') && value.uid === uid)?.[1];
  }
  async findByUserCode() {}
  async upsert(id, payload) { stored.set(this.key(id), payload); }
  async consume(id) { stored.get(this.key(id)).consumed = Math.floor(Date.now() / 1000); }
  async destroy(id) { stored.delete(this.key(id)); }
  async revokeByGrantId(grantId) {
    for (const [key, value] of stored) if (value.grantId === grantId) stored.delete(key);
  }
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
    adapter: Store,
    clients: clients.map((client) => ({
      client_id: client.id,
      client_secret: client.secret,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      scope: client.scope,
    })),
    cookies: { keys: [cookieKey] },
    jwks: { keys },
    scopes: ['openid', 'email', 'profile', ...clients.flatMap((client) => client.scope.split(' '))],
    // Claims of `openid` are in the ID token, and those of the other scopes only at the endpoint `userinfo`.
    claims: { openid: ['sub', 'groups'], email: ['email', 'email_verified'], profile: ['name'] },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => accounts.get(sub) ?? { sub } }),
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    // Nobody is asked for consent.
    loadExistingGrant: async ({ oidc: { client, session, provider, params } }) => {
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(params.scope);
      await grant.save();
      return grant;
    },
    pkce: { required: () => true },
    // The library would refuse to call this machine.
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    ttl: { ClientCredentials: LIFETIME_S },
    features: {
      backchannelLogout: { enabled: true },
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: ({ oidc }) => (clientsById.has(oidc.client.clientId) ? audience : undefined),
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
    extraTokenClaims: (_, { clientId }) => {
      const client = clientsById.get(clientId);
      return client && { email: client.email, email_verified: true };
    },
  });
}

const cookieKey = randomUUID();
let provider;
let answer;

function tell(keys) {
  console.log(JSON.stringify({ issuer: provider.issuer, keys: keys.map(({ kid }) => kid) }));
}

// A provider cannot change its keys, so a new one takes its place.
async function changeKeys() {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const keys = await generateKeys();
  provider = newProvider(issuer, keys);
  answer = provider.callback();
  return keys;
}

async function signIn(request, response) {
  const accountId = new URL(request.url, provider.issuer).searchParams.get('login');
  await provider.interactionDetails(request, response);
  await provider.interactionFinished(request, response, { login: { accountId } });
}

const server = createServer((request, response) => (
  request.url.startsWith('/interaction/') ? signIn(request, response) : answer(request, response)
));
server.listen(0, '127.0.0.1', async () => {
  let keys = await changeKeys();
  tell(keys);
  for await (const line of createInterface({ input: process.stdin })) {
    const { account, client } = line === 'rotate' ? {} : JSON.parse(line);
    if (account) accounts.set(account.sub, account);
    else if (client) stored.set(`Client:${client.client_id}`, client);
    else keys = await changeKeys();
    tell(keys);
  }
  process.exit();
});
