// How to reach a coordinator, and who one is there.

import fs from 'node:fs';
import net from 'node:net';

const NUMBERS = {callTimeout: 10, retryWindow: 4, reconnectWindow: 60};
const TEXTS = ['server', 'tlsCa', 'tlsCertificate', 'tlsKey', 'tlsServerName', 'tokenFile'];
const SWITCHES = ['tls', 'allowPlaintextToken'];

export const usesTls = options => Boolean(options.tls || options.tlsCa || options.tlsCertificate);

export function isLocal(server) {
  if (server.startsWith('unix:')) return true;
  const host = server.slice(0, server.lastIndexOf(':')).replace(/^\[|\]$/g, '');
  return host === 'localhost' || host === '::1' || (net.isIPv4(host) && host.startsWith('127.'));
}

// Fills what was left out; throws TypeError for what contradicts itself.
export function checked(given) {
  const known = [...TEXTS, ...SWITCHES, ...Object.keys(NUMBERS), 'protos', 'onReconnect'];
  for (const name of Object.keys(given)) {
    if (!known.includes(name)) throw new TypeError(`unknown option ${name}; use ${known.join(', ')}`);
  }
  const options = {server: '127.0.0.1:7070', ...NUMBERS, ...given};
  for (const name of Object.keys(NUMBERS)) {
    if (!(options[name] > 0)) throw new TypeError(`${name} ${options[name]}: must be seconds above 0`);
  }
  if (Boolean(options.tlsCertificate) !== Boolean(options.tlsKey)) {
    throw new TypeError('tlsCertificate and tlsKey go together: give both or none');
  }
  if (options.tlsServerName && !usesTls(options)) {
    throw new TypeError('tlsServerName without TLS: set tls or tlsCa');
  }
  if (options.tokenFile && !usesTls(options) && !isLocal(options.server) && !options.allowPlaintextToken) {
    throw new TypeError(`the token would go to ${options.server} unencrypted: set tls or tlsCa, or ` +
                        'allowPlaintextToken in a network that you trust');
  }
  return options;
}

// FSDPCTL_SERVER, FSDPCTL_TLS_CA ("system": the system's authorities) and the others, as fsdpctl reads them.
export function optionsFromEnvironment(environment = process.env) {
  const options = {};
  for (const name of TEXTS) {
    const variable = 'FSDPCTL_' + name.replace(/[A-Z]/g, letter => '_' + letter).toUpperCase();
    if (environment[variable]) options[name] = environment[variable];
  }
  if (options.tlsCa === 'system') {
    delete options.tlsCa;
    options.tls = true;
  }
  if (['true', '1'].includes(environment.FSDPCTL_ALLOW_PLAINTEXT_TOKEN)) options.allowPlaintextToken = true;
  return options;
}

// At each call, so that a rotated token is used from then on; null without a file.
export function readToken(options) {
  if (!options.tokenFile) return null;
  const token = fs.readFileSync(options.tokenFile, 'ascii').trim();
  if (!token) throw new TypeError(`${options.tokenFile} holds no token`);
  return token;
}
