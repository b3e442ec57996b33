#include "worker/train/trainer_ceilings.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/support/log.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// Get looks into the cache at every n-th call only: it is called once a step.
constexpr int kLookEvery = 16;

}  // namespace

CeilingsCache::CeilingsCache(const v1::TrainerStart& start)
    : first_of_host_(start.assignment().local_rank() == 0) {
  if (start.cache_dir().empty()) return;
  const char* device =
      start.assignment().job().spec().resources().device() == v1::DEVICE_TYPE_CUDA ? "cuda" : "cpu";
  path_ = absl::StrCat(start.cache_dir(), "/ceilings-", device, "-", start.cpu_threads(), ".pb");
}

absl::Status CeilingsCache::Prepare(
    const std::function<absl::StatusOr<v1::DeviceCeilings>(Device&)>& measure, Device& device,
    TrainerLink& link) {
  link_ = &link;
  if (Load()) return Announce();
  if (!first_of_host_ || !measure) return absl::OkStatus();
  absl::StatusOr<v1::DeviceCeilings> measured = measure(device);
  if (!measured.ok()) {
    LOG_WARNING("no ceilings, so no verdicts: %s", std::string(measured.status().message()));
    return absl::OkStatus();
  }
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
           read.copy_bytes_per_second() > 0;
  if (known_) ceilings_ = read;
  return known_;
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

absl::Status CeilingsCache::Announce() {
  v1::TrainerToDaemon message;
  *message.mutable_ceilings() = ceilings_;
  return link_->Send(message);
}

}  // namespace fsdp
