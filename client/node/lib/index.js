// Client of the fsdpctl training service: calls as promises, streams as async iterators.

import {randomUUID} from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {fileURLToPath} from 'node:url';

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

import {FsdpError, toFsdpError} from './errors.js';
import {checked, optionsFromEnvironment, readToken, usesTls} from './options.js';

export {FsdpError, optionsFromEnvironment};
export const status = grpc.status;

const HERE = path.dirname(fileURLToPath(import.meta.url));
// Beside lib in a package, at the root of the repository's tree.
const PROTOS = [path.join(HERE, '../protos'), path.join(HERE, '../../../proto')];
const FINISHED = ['JOB_STATE_SUCCEEDED', 'JOB_STATE_FAILED', 'JOB_STATE_CANCELLED'];

const MODES = ['MAINTENANCE_MODE_OFF', 'MAINTENANCE_MODE_HOLD', 'MAINTENANCE_MODE_CLOSED'];

export const isFinished = state => FINISHED.includes(state);
// "RUNNING" of JOB_STATE_RUNNING.
export const stateName = state => String(state).replace(/^JOB_STATE_/, '');
export const jobName = job => {
  const name = typeof job === 'string' ? job : job?.name;
  if (!name) throw new TypeError('a job is named by its id, its name or a Job');
  return name.startsWith('jobs/') ? name : `jobs/${name}`;
};

// 50 ms doubled each time up to 1 s, times 0.5 to 1; in milliseconds.
const backoff = tries => Math.min(1000, 50 * 2 ** tries) * (0.5 + 0.5 * Math.random());

function load(folder) {
  const root = folder ?? PROTOS.find(one => fs.existsSync(path.join(one, 'fsdp/v1/job_service.proto')));
  if (!root) throw new Error(`no protos in ${PROTOS.join(' or ')}; name their folder: {protos}`);
  // 64-bit numbers are strings, enum values their names: nothing is rounded, nothing is bare.
  return protoLoader.loadSync(
      ['fsdp/v1/job_service.proto', 'fsdp/v1/cluster_service.proto', 'google/rpc/status.proto',
       'google/rpc/error_details.proto'],
      {includeDirs: [root], keepCase: false, longs: String, enums: String, defaults: true, oneofs: true});
}

export class Client {
  // server or options: see index.d.ts. Does not connect before the first call.
  constructor(given = {}) {
    this.options = checked(typeof given === 'string' ? {server: given} : given);
    const {server, tlsServerName} = this.options;
    const definitions = load(this.options.protos);
    const decode = name => bytes => definitions[name].deserialize(bytes);
    this.decode = {status: decode('google.rpc.Status'), errorInfo: decode('google.rpc.ErrorInfo'),
                   badRequest: decode('google.rpc.BadRequest')};
    const {JobService, ClusterService} = grpc.loadPackageDefinition(definitions).fsdp.v1;
    const channel = {
      'grpc.max_receive_message_length': 64 << 20,
      // A coordinator is dialled directly, also where http_proxy is set for the machine.
      'grpc.enable_http_proxy': 0,
      'grpc.keepalive_time_ms': 30000,
      'grpc.keepalive_timeout_ms': 10000,
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 1000,
      'grpc.primary_user_agent': 'fsdp-node',
      ...(tlsServerName ? {'grpc.ssl_target_name_override': tlsServerName} : {}),
    };
    // The services as they are.
    this.jobs = new JobService(server, this.#credentials(), channel);
    this.cluster = new ClusterService(server, this.#credentials(), channel);
  }

  // Ends all calls and streams.
  close() {
    this.jobs.close();
    this.cluster.close();
  }

  // The job is on disk when this resolves.
  async submit(job, {requestId = randomUUID()} = {}) {
    return (await this.#call('createJob', {job, requestId})).job;
  }

  async get(job) { return (await this.#call('getJob', {name: jobName(job)})).job; }

  // Newest first.
  async list(filter = {}) {
    const jobs = [];
    let pageToken = '';
    do {
      const page = await this.#call('listJobs', {...filter, pageSize: 500, pageToken});
      jobs.push(...page.jobs);
      pageToken = page.nextPageToken;
    } while (pageToken);
    return jobs;
  }

  async cancel(job, reason = '') {
    return (await this.#call('cancelJob', {name: jobName(job), reason})).job;
  }

  // By name: quotas, what is used, borrowed and waited for, shares.
  async queues() {
    const queues = [];
    let pageToken = '';
    do {
      const page = await this.#call('listQueues', {pageToken}, this.cluster);
      queues.push(...page.queues);
      pageToken = page.nextPageToken;
    } while (pageToken);
    return queues;
  }

  async queue(name) {
    return (await this.#call('getQueue', {name: name.startsWith('queues/') ? name : `queues/${name}`}, this.cluster)).queue;
  }

  // The mode that is set, by whom and why.
  async maintenance() { return (await this.#call('getCluster', {}, this.cluster)).maintenance; }

  // HOLD: jobs wait; CLOSED: new ones are refused too; OFF. What runs goes on.
  async setMaintenance(mode, reason = '') {
    const full = MODES.find(one => one === mode || one === `MAINTENANCE_MODE_${String(mode).toUpperCase()}`);
    if (!full) throw new TypeError(`${mode} is no mode of maintenance: use OFF, HOLD or CLOSED`);
    return (await this.#call('setMaintenance', {mode: full, reason}, this.cluster)).maintenance;
  }

  // The job as it is, then as it changes, until it is finished; the finished job comes always.
  async *watch(job, {signal} = {}) {
    const request = {name: jobName(job), afterRevision: '0'};
    for (let tries = 0;; ++tries) {
      for await (const response of this.#stream('watchJob', request, signal)) {
        request.afterRevision = response.job.revision;
        yield response.job;
        if (isFinished(response.job.state)) return;
      }
      // The server ended the watch of an unfinished job, or it finished at the revision seen last.
      const now = await this.get(job);
      if (isFinished(now.state)) {
        if (now.revision !== request.afterRevision) yield now;
        return;
      }
      await sleep(backoff(tries), undefined, {signal});
    }
  }

  // The finished job.
  async wait(job, options = {}) {
    let last;
    for await (const now of this.watch(job, options)) last = now;
    return last ?? this.get(job);
  }

  // One StepMetrics per step; with follow until the job is finished.
  async *metrics(job, {follow = false, signal} = {}) {
    const request = {name: jobName(job), follow, afterOffset: '0'};
    let wasFinished = false;
    for (let tries = 0;; ++tries) {
      for await (const response of this.#stream('streamMetrics', request, signal)) {
        for (const metrics of response.metrics) {
          if (BigInt(metrics.offset) <= BigInt(request.afterOffset)) continue;
          request.afterOffset = metrics.offset;
          yield metrics;
        }
      }
      if (!follow || wasFinished) return;
      // Finished only now: what came between the stream's end and this look is still to be read.
      wasFinished = isFinished((await this.get(job)).state);
      if (!wasFinished) await sleep(backoff(tries), undefined, {signal});
    }
  }

  #credentials() {
    const {tlsCa, tlsKey, tlsCertificate} = this.options;
    if (!usesTls(this.options)) return grpc.credentials.createInsecure();
    const read = file => file ? fs.readFileSync(file) : null;
    return grpc.credentials.createSsl(read(tlsCa), read(tlsKey), read(tlsCertificate));
  }

  #metadata() {
    const metadata = new grpc.Metadata();
    const token = readToken(this.options);
    if (token) metadata.set('authorization', `Bearer ${token}`);
    return metadata;
  }

  #error(error) { return toFsdpError(error, this.options.server, this.decode); }

  // UNAVAILABLE is repeated within retryWindow: every method here may be.
  async #call(method, request, service = this.jobs) {
    const start = Date.now();
    const deadline = start + this.options.callTimeout * 1000;
    const until = Math.min(deadline, start + this.options.retryWindow * 1000);
    for (let tries = 0;; ++tries) {
      try {
        const metadata = this.#metadata();
        return await new Promise((resolve, reject) => service[method](
            request, metadata, {deadline}, (error, response) => error ? reject(error) : resolve(response)));
      } catch (error) {
        if (error.code === undefined) throw error;
        const failed = this.#error(error);
        const wait = backoff(tries);
        if (!failed.mayPass || Date.now() + wait > until) throw failed;
        await sleep(wait);
      }
    }
  }

  // Until the server ends the stream well; `request` says where to go on. A connection that delivered starts a
  // new window; one that only opens and closes does not.
  async *#stream(method, request, signal) {
    let until = Date.now() + this.options.retryWindow * 1000;
    for (let tries = 0;; ++tries) {
      signal?.throwIfAborted();
      const call = this.jobs[method](request, this.#metadata());
      const abort = () => call.cancel();
      signal?.addEventListener('abort', abort);
      let delivered = false;
      try {
        for await (const response of call) {
          delivered = true;
          yield response;
        }
        return;
      } catch (error) {
        signal?.throwIfAborted();
        if (error.code === undefined) throw error;
        const failed = this.#error(error);
        if (delivered) {
          tries = 0;
          until = Date.now() + this.options.reconnectWindow * 1000;
        }
        const wait = backoff(tries);
        if (!failed.mayPass || Date.now() + wait > until) throw failed;
        this.options.onReconnect?.(failed);
        await sleep(wait, undefined, {signal});
      } finally {
        signal?.removeEventListener('abort', abort);
        call.cancel();
      }
    }
  }
}
