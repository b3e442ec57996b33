// Submits a small job, prints each step's loss as it comes, and ends by the job's result.

import {Client, optionsFromEnvironment, stateName} from '../lib/index.js';

const client = new Client(optionsFromEnvironment());
try {
  const submitted = await client.submit({
    apiVersion: 'fsdp.v1',
    kind: 'TrainingJob',
    metadata: {name: 'from-node'},
    spec: {
      model: {family: 'MODEL_FAMILY_LLAMA', vocabSize: 64, dim: 32, numLayers: 2, numHeads: 2, mlpDim: 64},
      data: {source: 'DATA_SOURCE_SYNTHETIC', sequenceLength: 32},
      train: {globalBatch: 4},
      resources: {nodes: 1, devicesPerNode: 2, device: 'DEVICE_TYPE_CPU'},
      limits: {maxSteps: 5},
    },
  });
  console.log('submitted', submitted.name);
  for await (const step of client.metrics(submitted, {follow: true})) {
    console.log(`step ${step.step} loss ${step.loss.toFixed(4)}`);
  }
  const job = await client.wait(submitted);
  console.log('ended', stateName(job.state));
  if (job.state !== 'JOB_STATE_SUCCEEDED') throw new Error(job.reason);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  client.close();
}
