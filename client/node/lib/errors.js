// Failed calls, with the service's details.

import {status} from '@grpc/grpc-js';

// code: a number of grpc.status. reason: UPPER_SNAKE_CASE, empty when no coordinator made the error.
// violations: [{field, description}], one per bad field.
export class FsdpError extends Error {
  constructor(message, {code, reason = '', metadata = {}, violations = []}) {
    const lines = violations.filter(one => !message.includes(one.description))
        .map(one => `\n  ${one.field}: ${one.description}`);
    super(message + (reason ? ` [${reason}]` : '') + lines.join(''));
    this.name = 'FsdpError';
    this.code = code;
    this.reason = reason;
    this.metadata = metadata;
    this.violations = violations;
  }

  // The coordinator is away, perhaps to be back soon.
  get mayPass() { return this.code === status.UNAVAILABLE && this.reason !== 'STORE_FAILED'; }
}

// decode: {status, errorInfo, badRequest}, from bytes to objects; throws for garbage.
export function toFsdpError(error, server, decode) {
  if (error instanceof FsdpError) return error;
  let info, request;
  try {
    const raw = error.metadata?.get('grpc-status-details-bin')[0];
    for (const detail of raw ? decode.status(raw).details : []) {
      if (detail.type_url.endsWith('/google.rpc.ErrorInfo')) info = decode.errorInfo(detail.value);
      if (detail.type_url.endsWith('/google.rpc.BadRequest')) request = decode.badRequest(detail.value);
    }
  } catch {
    // What cannot be read is left out: the message stands on its own.
  }
  const message = error.details || error.message;
  const broken = [status.INTERNAL, status.UNKNOWN, status.UNAVAILABLE].includes(error.code);
  if (!info && broken) {
    return new FsdpError(`no connection to the coordinator at ${server} (${message})`,
                         {code: status.UNAVAILABLE});
  }
  return new FsdpError(message, {
    code: error.code, reason: info?.reason ?? '', metadata: info?.metadata ?? {},
    violations: (request?.fieldViolations ?? []).map(({field, description}) => ({field, description})),
  });
}
