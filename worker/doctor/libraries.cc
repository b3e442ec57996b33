// Versions of the CUDA libraries, from the libraries themselves.

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/doctor/host_facts.h"

namespace fsdp::doctor {
namespace {

// A library with one function that tells its version.
struct Library {
  const char* name;
  // Newest first.
  std::vector<std::string> files;
  const char* function;
  // Calls it; empty: it failed.
  std::function<std::string(void*)> version;
  // Of the file or its version; 0: it does not tell.
  std::function<int(const std::string& file, const std::string& version)> cuda_major;
};

// `int f(int*)`, 0: success.
std::string Asked(void* function, const std::function<std::string(int)>& text) {
  int version = 0;
  const int result = reinterpret_cast<int (*)(int*)>(function)(&version);
  return result == 0 ? text(version) : "";
}

std::string CudnnText(std::size_t version) {
  // 9.19.0 is 91900, 8.9.7 was 8907.
  const std::size_t major = version / (version >= 90000 ? 10000 : 1000);
  const std::size_t rest = version % (version >= 90000 ? 10000 : 1000);
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

// The number after ".so.".
int FileMajor(const std::string& file) {
  const std::size_t dot = file.rfind('.');
  return dot == std::string::npos ? 0 : std::atoi(file.c_str() + dot + 1);
}

int NoMajor(const std::string& /*file*/, const std::string& /*version*/) { return 0; }

const std::vector<Library>& Libraries() {
  static const auto& libraries = *new std::vector<Library>{
      {"CUDA driver",
       {"libcuda.so.1"},
       "cuDriverGetVersion",
       [](void* f) { return Asked(f, CudaVersionText); },
       NoMajor},
      {"cuBLASLt",
       {"libcublasLt.so.13", "libcublasLt.so.12"},
       "cublasLtGetVersion",
       [](void* f) {
         const std::size_t version = reinterpret_cast<std::size_t (*)()>(f)();
         return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
       },
       [](const std::string& file, const std::string&) { return FileMajor(file); }},
      {"NCCL",
       {"libnccl.so.2"},
       "ncclGetVersion",
       [](void* f) { return Asked(f, NcclVersionText); },
       NoMajor},
      {"cuDNN",
       {"libcudnn.so.9"},
       "cudnnGetVersion",
       [](void* f) { return CudnnText(reinterpret_cast<std::size_t (*)()>(f)()); },
       NoMajor},
      {"CUPTI",
       {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "libcupti.so.12",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12"},
       "cuptiGetVersion",
       [](void* f) {
         return Asked(
             f, [](int version) { return absl::StrCat(version / 10000, ".", version % 10000); });
       },
       [](const std::string& file, const std::string&) { return FileMajor(file); }}};
  return libraries;
}

LibraryFacts ReadLibrary(const Library& library) {
  LibraryFacts facts{.name = library.name, .file = library.files.front()};
  for (const std::string& file : library.files) {
    void* const handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const said = ::dlerror();
      const std::string error = said == nullptr ? "" : said;
      // Of one that is not there the loader says just this; anything else is worth telling.
      if (!absl::StrContains(error, absl::StrCat(file, ": cannot open shared object file"))) {
        facts.file = file;
        facts.error = error;
      }
      continue;
    }
    facts.file = file;
    facts.error.clear();
    void* const function = ::dlsym(handle, library.function);
    if (function != nullptr) facts.version = library.version(function);
    if (facts.version.empty()) facts.error = absl::StrCat(library.function, " failed");
    facts.cuda_major = library.cuda_major(file, facts.version);
    // Never closed: CUDA's libraries do not bear it.
    return facts;
  }
  return facts;
}

}  // namespace

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::vector<LibraryFacts> ReadLibraries() {
  std::vector<LibraryFacts> facts;
  for (const Library& library : Libraries()) facts.push_back(ReadLibrary(library));
  return facts;
}

}  // namespace fsdp::doctor
