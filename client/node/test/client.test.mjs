import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {test} from 'node:test';
import {fileURLToPath} from 'node:url';

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

import {Client, FsdpError, jobName, optionsFromEnvironment, stateName, status} from '../lib/index.js';

const here = path.dirname(fileURLToPath(import.meta.url));
const protos = [path.join(here, '../protos'), path.join(here, '../../../proto')].find(one => fs.existsSync(one));
const definitions = protoLoader.loadSync(
    ['fsdp/v1/job_service.proto', 'fsdp/v1/cluster_service.proto', 'google/rpc/status.proto', 'google/rpc/error_details.proto'],
    {includeDirs: [protos], longs: String, enums: String, defaults: true});
const {JobService, ClusterService} = grpc.loadPackageDefinition(definitions).fsdp.v1;

const fail = (code, details, metadata) => Object.assign(new Error(details), {code, details, metadata});

// A coordinator whose streams break where a test says: after the third and the sixth of ten steps, and it repeats one.
async function scripted(t, more = {}) {
  const seen = {offsets: [], tokens: [], tries: 0};
  const server = new grpc.Server();
  const encode = (name, value) => definitions[name].serialize(value);
  server.addService(JobService.service, {
    getJob: (call, reply) => {
      seen.tokens.push(...call.metadata.get('authorization'));
      seen.tries += 1;
      if (call.request.name === 'jobs/away' && seen.tries < 3) return reply(fail(status.UNAVAILABLE, 'starting'));
      if (call.request.name === 'jobs/none') {
        const metadata = new grpc.Metadata();
        metadata.set('grpc-status-details-bin', encode('google.rpc.Status', {code: 5, message: 'no', details: [
          {type_url: 'type.googleapis.com/google.rpc.ErrorInfo',
           value: encode('google.rpc.ErrorInfo', {reason: 'JOB_NOT_FOUND', metadata: {job: 'none'}})},
          {type_url: 'type.googleapis.com/google.rpc.BadRequest',
           value: encode('google.rpc.BadRequest', {fieldViolations: [{field: 'name', description: 'of no job'}]})},
        ]}));
        return reply(fail(status.NOT_FOUND, 'no job none', metadata));
      }
      return reply(null, {job: {name: call.request.name, state: 'JOB_STATE_SUCCEEDED', revision: 9}});
    },
    streamMetrics: call => {
      const after = Number(call.request.afterOffset);
      seen.offsets.push(after);
      for (let offset = Math.max(after, 1); offset <= 10; ++offset) {
        call.write({metrics: [{offset, step: offset}]});
        if ((offset === 3 || offset === 6) && offset !== after) {
          return call.emit('error', fail(status.UNAVAILABLE, 'draining'));
        }
      }
      return call.end();
    },
    watchJob: call => {
      const after = Number(call.request.afterRevision);
      if (after >= 2) return call.end();
      call.write({job: {state: 'JOB_STATE_RUNNING', revision: after + 1}});
      return call.emit('error', fail(status.UNAVAILABLE, 'draining'));
    },
  });
  let maintenance = null;
  server.addService(ClusterService.service, {
    // Two pages.
    listQueues: (call, reply) => reply(null, call.request.pageToken ?
        {queues: [{name: 'queues/b'}]} : {queues: [{name: 'queues/a'}], nextPageToken: '2'}),
    getQueue: (call, reply) => reply(null, {queue: {name: call.request.name}}),
    setMaintenance: (call, reply) => reply(null, {maintenance: maintenance = call.request}),
    getCluster: (call, reply) => reply(null, {maintenance}),
  });
  const port = await new Promise((resolve, reject) => server.bindAsync(
      '127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, at) => error ? reject(error) : resolve(at)));
  const client = new Client({server: `127.0.0.1:${port}`, protos, ...more});
  t.after(() => {
    client.close();
    server.forceShutdown();
  });
  return {client, seen};
}

test('streams go on where they broke', async t => {
  let lost = 0;
  const {client, seen} = await scripted(t, {onReconnect: () => lost += 1});
  const steps = [];
  for await (const step of client.metrics('a', {follow: true})) steps.push(Number(step.step));
  assert.deepEqual(steps, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.equal(lost, 2);
  assert.deepEqual(seen.offsets.slice(0, 3), [0, 3, 6]);
});

test('the finished job comes always', async t => {
  const {client} = await scripted(t);
  const revisions = [];
  for await (const job of client.watch('a')) revisions.push(job.revision);
  assert.deepEqual(revisions, ['1', '2', '9']);
  assert.equal((await client.wait('a')).revision, '9');
});

test('queues and maintenance', async t => {
  const {client} = await scripted(t);
  assert.deepEqual((await client.queues()).map(queue => queue.name), ['queues/a', 'queues/b']);
  assert.equal((await client.queue('a')).name, 'queues/a');
  assert.equal((await client.queue('queues/a')).name, 'queues/a');
  assert.equal((await client.setMaintenance('hold', 'switch')).mode, 'MAINTENANCE_MODE_HOLD');
  const {mode, reason} = await client.maintenance();
  assert.deepEqual([mode, reason], ['MAINTENANCE_MODE_HOLD', 'switch']);
  await client.setMaintenance('MAINTENANCE_MODE_OFF');
  await assert.rejects(client.setMaintenance('shut'), /shut is no mode of maintenance: use OFF, HOLD or CLOSED/);
});

test('errors have their details', async t => {
  const {client} = await scripted(t);
  await assert.rejects(client.get('none'), error => {
    assert.ok(error instanceof FsdpError);
    assert.equal(error.code, status.NOT_FOUND);
    assert.equal(error.reason, 'JOB_NOT_FOUND');
    assert.deepEqual({...error.metadata}, {job: 'none'});
    assert.deepEqual(error.violations, [{field: 'name', description: 'of no job'}]);
    assert.equal(error.message, 'no job none [JOB_NOT_FOUND]\n  name: of no job');
    return true;
  });
});

test('calls are repeated while the coordinator is away', async t => {
  const {client, seen} = await scripted(t);
  await client.get('away');
  assert.equal(seen.tries, 3);
});

test('a signal ends a stream', async t => {
  const {client} = await scripted(t);
  const controller = new AbortController();
  await assert.rejects(async () => {
    for await (const step of client.metrics('a', {follow: true, signal: controller.signal})) {
      if (step.step === '5') controller.abort();
    }
  }, {name: 'AbortError'});
});

test('the token is read at each call', async t => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'fsdp-node-')), 'token');
  t.after(() => fs.rmSync(path.dirname(file), {recursive: true}));
  const {client, seen} = await scripted(t, {tokenFile: file});
  for (const token of ['one', 'two']) {
    fs.writeFileSync(file, token + '\n');
    await client.get('a');
  }
  assert.deepEqual(seen.tokens, ['Bearer one', 'Bearer two']);
  fs.writeFileSync(file, ' ');
  await assert.rejects(client.get('a'), /holds no token/);
});

test('nobody there', async () => {
  const client = new Client({server: '127.0.0.1:1', retryWindow: 0.001, protos});
  await assert.rejects(client.get('x'), error => error.code === status.UNAVAILABLE && /127.0.0.1:1/.test(error));
  client.close();
});

test('options that contradict themselves', () => {
  for (const [options, part] of [
    [{tlsKey: 'k'}, /together/], [{tlsServerName: 'x'}, /without TLS/], [{sever: 'x'}, /unknown option sever/],
    [{server: 'host:1', tokenFile: 't'}, /unencrypted/], [{callTimeout: 0}, /above 0/]]) {
    assert.throws(() => new Client({...options, protos}), part);
  }
  assert.deepEqual(optionsFromEnvironment({FSDPCTL_TLS_SERVER_NAME: 'n', FSDPCTL_SERVER: 's:1', HOME: '/'}),
                   {server: 's:1', tlsServerName: 'n'});
  assert.deepEqual(optionsFromEnvironment({FSDPCTL_TLS_CA: 'system', FSDPCTL_ALLOW_PLAINTEXT_TOKEN: '1'}),
                   {tls: true, allowPlaintextToken: true});
  assert.equal(jobName({name: 'jobs/a'}), 'jobs/a');
  assert.equal(stateName('JOB_STATE_RUNNING'), 'RUNNING');
  assert.throws(() => jobName(''), TypeError);
});
