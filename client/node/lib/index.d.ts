// Types of the client. Messages are plain objects with the names of the proto's JSON form; 64-bit numbers are
// strings, enum values their names ("JOB_STATE_RUNNING").

export interface ClientOptions {
  /** "host:port", "[v6]:port" or "unix:/path"; default 127.0.0.1:7070. */
  server?: string;
  /** Seconds, of one call with its repeats; default 10. */
  callTimeout?: number;
  /** Seconds that a call is repeated while the coordinator is away; default 4. */
  retryWindow?: number;
  /** Seconds that a stream tries to get its coordinator back; default 60. */
  reconnectWindow?: number;
  /** TLS without a file: the system's authorities are trusted. */
  tls?: boolean;
  /** PEM files. */
  tlsCa?: string;
  tlsCertificate?: string;
  tlsKey?: string;
  /** The name in the coordinator's certificate, where it is not the one that is dialled. */
  tlsServerName?: string;
  /** Holds a bearer token; read at each call. */
  tokenFile?: string;
  /** Lets a token go over an unencrypted connection to another machine. */
  allowPlaintextToken?: boolean;
  /** Folder of the .proto files; default: the package's. */
  protos?: string;
  /** Told of each broken connection. */
  onReconnect?: (error: FsdpError) => void;
}

export interface Job {
  name: string;
  state: string;
  reason: string;
  revision: string;
  progress: {step: string; totalSteps: string; loss: number; [field: string]: unknown} | null;
  [field: string]: unknown;
}

export interface StepMetrics {
  offset: string;
  step: string;
  loss: number;
  [field: string]: unknown;
}

export interface Queue {
  name: string;
  configured: boolean;
  [field: string]: unknown;
}

export interface Maintenance {
  /** "MAINTENANCE_MODE_OFF", …_HOLD or …_CLOSED. */
  mode: string;
  reason: string;
  owner: string;
  [field: string]: unknown;
}

export class FsdpError extends Error {
  readonly code: number;
  readonly reason: string;
  readonly metadata: Record<string, string>;
  readonly violations: {field: string; description: string}[];
}

type JobRef = string | {name: string};

export class Client {
  constructor(options?: string | ClientOptions);
  /** job: a TrainingJob as an object, enum values by their full names. */
  submit(job: object, options?: {requestId?: string}): Promise<Job>;
  get(job: JobRef): Promise<Job>;
  list(filter?: {states?: string[]; queue?: string; labels?: Record<string, string>}): Promise<Job[]>;
  cancel(job: JobRef, reason?: string): Promise<Job>;
  queues(): Promise<Queue[]>;
  queue(name: string): Promise<Queue>;
  maintenance(): Promise<Maintenance>;
  /** mode: "OFF", "HOLD" or "CLOSED", or its full name. */
  setMaintenance(mode: string, reason?: string): Promise<Maintenance>;
  watch(job: JobRef, options?: {signal?: AbortSignal}): AsyncGenerator<Job>;
  wait(job: JobRef, options?: {signal?: AbortSignal}): Promise<Job>;
  metrics(job: JobRef, options?: {follow?: boolean; signal?: AbortSignal}): AsyncGenerator<StepMetrics>;
  close(): void;
}

export const status: Record<string, number>;
export function optionsFromEnvironment(environment?: Record<string, string | undefined>): ClientOptions;
export function isFinished(state: string): boolean;
export function stateName(state: string): string;
export function jobName(job: JobRef): string;
