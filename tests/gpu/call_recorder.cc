#include "tests/gpu/call_recorder.h"

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

bool DriverCall::Waits() const {
  if (Contains(function, "Synchronize")) return true;
  const bool moves = StartsWith(function, "cuMemcpy") || StartsWith(function, "cuMemset");
  return moves && !Contains(function, "Async");
}

bool DriverCall::Allocates() const {
  constexpr std::array<std::string_view, 7> kFunctions = {
      "cuMemAlloc", "cuMemFree",          "cuMemCreate",  "cuMemRelease",
      "cuMemHost",  "cuGraphInstantiate", "cuMemAddress",
  };
  // Only asks where a pinned buffer is.
  if (StartsWith(function, "cuMemHostGet")) return false;
  return std::any_of(kFunctions.begin(), kFunctions.end(),
                     [this](std::string_view name) { return StartsWith(function, name); });
}

bool DriverCall::Launches() const {
  return StartsWith(function, "cuLaunchKernel") || StartsWith(function, "cuGraphLaunch");
}

struct CallRecorder::Impl {
  void* library = nullptr;
  CUpti_SubscriberHandle subscriber = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableDomain) enable_domain = nullptr;

  std::atomic<bool> recording = false;
  std::mutex mutex;
  std::vector<DriverCall> calls;  // guarded by mutex

  ~Impl() {
    if (subscriber != nullptr) unsubscribe(subscriber);
    // Never closed: the driver still calls into it.
  }

  template <typename Function>
  bool Find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  static void CUPTIAPI Called(void* self, CUpti_CallbackDomain /*domain*/, CUpti_CallbackId /*id*/,
                              const void* data) {
    auto& impl = *static_cast<Impl*>(self);
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (call.callbackSite != CUPTI_API_ENTER || !impl.recording) return;
    DriverCall record{call.functionName, ""};
    if (record.Launches() && call.symbolName != nullptr) record.kernel = call.symbolName;
    const std::lock_guard<std::mutex> lock(impl.mutex);
    impl.calls.push_back(std::move(record));
  }
};

CallRecorder::CallRecorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CallRecorder::~CallRecorder() = default;

absl::StatusOr<std::unique_ptr<CallRecorder>> CallRecorder::Create() {
  auto impl = std::make_unique<Impl>();
  const std::string name = absl::StrCat("libcupti.so.", CUDART_VERSION / 1000);
  impl->library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (impl->library == nullptr) return absl::NotFoundError(dlerror());
  if (!impl->Find("cuptiSubscribe", impl->subscribe) ||
      !impl->Find("cuptiUnsubscribe", impl->unsubscribe) ||
      !impl->Find("cuptiEnableDomain", impl->enable_domain)) {
    return absl::NotFoundError(absl::StrCat(name, " lacks a function: ", dlerror()));
  }
  CUptiResult result = impl->subscribe(&impl->subscriber, Impl::Called, impl.get());
  if (result == CUPTI_SUCCESS) {
    result = impl->enable_domain(1, impl->subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
  }
  if (result != CUPTI_SUCCESS) {
    return absl::InternalError(absl::StrCat(name, " refuses: CUptiResult ", result));
  }
  return std::unique_ptr<CallRecorder>(new CallRecorder(std::move(impl)));
}

void CallRecorder::Start() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->calls.clear();
  impl_->recording = true;
}

std::vector<DriverCall> CallRecorder::Take() {
  impl_->recording = false;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return std::exchange(impl_->calls, {});
}

}  // namespace fsdp
