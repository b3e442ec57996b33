#ifndef FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_CONTRACT_H_
#define FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_CONTRACT_H_

// The contract of worker/device/{device,ops}.h as a test suite over backends. A backend's test file
// includes this header once and instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceOpsContract,
//                            ::testing::Values(Backend{"cpu", CreateIt}), BackendName);
// It links fsdp_device_cpu too: the CPU backend in f64 is the truth.

#include "tests/contract/device_ops/cases_attention.h"
#include "tests/contract/device_ops/cases_documents.h"
#include "tests/contract/device_ops/cases_errors.h"
#include "tests/contract/device_ops/cases_linear.h"
#include "tests/contract/device_ops/cases_qk_norm.h"
#include "tests/contract/device_ops/cases_rows.h"
#include "tests/contract/device_ops/cases_streams.h"
#include "tests/contract/device_ops/cases_training.h"
#include "tests/contract/device_ops/device_ops_fixture.h"

#endif  // FSDPCTL_TESTS_CONTRACT_DEVICE_OPS_DEVICE_OPS_CONTRACT_H_
