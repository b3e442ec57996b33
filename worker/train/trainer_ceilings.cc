#include "worker/train/trainer_ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"
#include "worker/profile/family_recorder.h"

namespace fsdp {
namespace {

// Get looks into the cache at every n-th call only: it is called once a step.
constexpr int kLookEvery = 16;

constexpr int kGathers = 3;

}  // namespace

CeilingsCache::CeilingsCache(const v1::TrainerStart& start)
    : first_of_host_(start.assignment().local_rank() == 0) {
  if (start.cache_dir().empty()) return;
  const char* device =
      start.assignment().job().spec().resources().device() == v1::DEVICE_TYPE_CUDA ? "cuda" : "cpu";
  path_ = absl::StrCat(start.cache_dir(), "/ceilings-", device, "-", start.cpu_threads(), ".2.pb");
}

absl::Status CeilingsCache::Prepare(
    const std::function<absl::StatusOr<v1::DeviceCeilings>(Device&)>& measure, Device& device,
    TrainerLink& link) {
  link_ = &link;
  device_ = device.name();
  if (Load()) return Announce();
  if (!first_of_host_ || !measure) return absl::OkStatus();
  absl::StatusOr<v1::DeviceCeilings> measured = measure(device);
  if (!measured.ok()) {
    LOG_WARNING("no ceilings, so no verdicts: %s", std::string(measured.status().message()));
    return absl::OkStatus();
  }
  measured->set_collective_bytes_per_second(ceilings_.collective_bytes_per_second());
  ceilings_ = *std::move(measured);
  known_ = true;
  Store();
  return Announce();
}

const v1::DeviceCeilings& CeilingsCache::Get() {
  if (!known_ && looks_++ % kLookEvery == 0 && Load()) Announce().IgnoreError();
  return ceilings_;
}

bool CeilingsCache::Load() {
  if (path_.empty()) return false;
  std::ifstream file(path_, std::ios::binary);
  v1::DeviceCeilings read;
  known_ = file && read.ParseFromIstream(&file) && read.fp32_flops_per_second() > 0 &&
           read.copy_bytes_per_second() > 0 && read.device() == device_;
  if (!known_) return false;
  read.set_collective_bytes_per_second(ceilings_.collective_bytes_per_second());
  ceilings_ = read;
  return true;
}

// A cache: what cannot be written is measured again next time.
void CeilingsCache::Store() const {
  if (path_.empty()) return;
  const std::string temporary = absl::StrCat(path_, ".tmp.", ::getpid());
  {
    std::ofstream file(temporary, std::ios::binary);
    if (!file || !ceilings_.SerializeToOstream(&file)) return;
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) ::unlink(temporary.c_str());
}

absl::Status CeilingsCache::AddCollective(double bytes_per_second) {
  ceilings_.set_collective_bytes_per_second(bytes_per_second);
  return Announce();
}

absl::Status CeilingsCache::Announce() {
  v1::TrainerToDaemon message;
  *message.mutable_ceilings() = ceilings_;
  return link_->Send(message);
}

v1::DeviceCeilings CeilingsRecord(const DeviceCeilings& measured, const std::string& device) {
  v1::DeviceCeilings record;
  record.set_device(device);
  record.set_fp32_flops_per_second(measured.fp32.alone);
  record.set_bf16_flops_per_second(measured.bf16.alone);
  record.set_fp8_flops_per_second(measured.fp8.alone);
  record.set_sustained_fp32_flops_per_second(measured.fp32.sustained);
  record.set_sustained_bf16_flops_per_second(measured.bf16.sustained);
  record.set_sustained_fp8_flops_per_second(measured.fp8.sustained);
  record.set_copy_bytes_per_second(measured.copy_bytes_per_second);
  return record;
}

absl::StatusOr<double> MeasureCollective(Communicator& communicator, Device& device,
                                         std::int64_t total_bytes) {
  const std::int64_t world = communicator.world_size();
  const std::int64_t shard_size =
      total_bytes / world / static_cast<std::int64_t>(SizeOf(DType::kF32));
  const auto shard_bytes = static_cast<std::size_t>(shard_size) * SizeOf(DType::kF32);
  ASSIGN_OR_RETURN(const auto buffer,
                   device.Allocate(shard_bytes * static_cast<std::size_t>(world + 1)));
  auto* memory = static_cast<std::byte*>(buffer->data());
  const Vector shard{memory, DType::kF32, shard_size};
  const Vector unit{memory + shard_bytes, DType::kF32, shard_size * world};
  double shortest = 0;
  for (int i = 0; i <= kGathers; ++i) {
    RETURN_IF_ERROR(communicator.Barrier(device.gather()));
    RETURN_IF_ERROR(device.Synchronize(device.gather()));
    const std::int64_t begin = MonotonicNs();
    RETURN_IF_ERROR(communicator.AllGather(shard, unit, device.gather()));
    RETURN_IF_ERROR(device.Synchronize(device.gather()));
    const double seconds = static_cast<double>(MonotonicNs() - begin) * 1e-9;
    // The first one connects.
    shortest = i <= 1 ? seconds : std::min(shortest, seconds);
    // A peer that is gone ends the waiting, too.
    RETURN_IF_ERROR(communicator.Health());
  }
  const auto bytes = static_cast<double>(shard_bytes) * static_cast<double>(world - 1);
  return bytes / std::max(shortest, 1e-9);
}

}  // namespace fsdp
