#include "worker/tokenize/job_mode.h"

#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"

namespace fsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kInterval = std::chrono::milliseconds(200);

void Print(const Json& json, std::ostream* out) {
  // A path need not be UTF-8.
  *out << json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) << std::endl;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadNames(std::istream& in) {
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    if (end == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the list of sources was cut at \"", text.substr(begin), "\""));
    }
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

void UseWordsOfJobs(DocumentOptions* documents) {
  documents->text_remedy = "a file whose name does not end in .jsonl is taken as it is";
  documents->text_field_name = "data.textField";
}

void JobReporter::Progress(const TokenizeProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kInterval) return;
  last_ = now;
  Print({{"doneBytes", progress.done_bytes},
         {"totalBytes", progress.total_bytes},
         {"tokens", progress.tokens}},
        out_);
}

void JobReporter::Failed(const absl::Status& status) {
  Print({{"error",
          {{"code", static_cast<int>(status.code())}, {"message", std::string(status.message())}}}},
        out_);
}

}  // namespace fsdp
