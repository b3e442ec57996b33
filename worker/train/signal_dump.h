#ifndef FSDPCTL_WORKER_TRAIN_SIGNAL_DUMP_H_
#define FSDPCTL_WORKER_TRAIN_SIGNAL_DUMP_H_

// `kill -USR1` of a trainer: its last collectives go to stderr, so to the job's log, whatever its
// step thread does.

#include <memory>
#include <string>

#include "worker/profile/flight_recorder.h"

namespace fsdp {

// Before any other thread is started: the signal is to be taken by nobody else.
void BlockDumpSignal();

// From now on, in this process and until it ends. BlockDumpSignal has been called.
void DumpOnSignal(std::shared_ptr<const FlightRecorder> recorder);

// The newest `count` collectives, a line each, oldest first, with what is pending.
std::string DumpText(const FlightRecorder& recorder, std::size_t count);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_TRAIN_SIGNAL_DUMP_H_
