// write_example_profile FOLDER plain|hostile [MAX_TRACE_BYTES]: the files of an example profile,
// and profile.json: the same recordings as protobuf's JSON, for programs that check the files.

#include <google/protobuf/util/json_util.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/unit/worker/profile/report/example_profile.h"
#include "worker/profile/report/profile_folder.h"

int main(int argc, char** argv) {
  const std::string names = argc >= 3 ? argv[2] : "";
  if (argc > 4 || (names != "plain" && names != "hostile")) {
    std::cerr << "usage: write_example_profile FOLDER plain|hostile [MAX_TRACE_BYTES]\n";
    return 2;
  }
  const fsdp::v1::JobProfile profile = fsdp::ExampleProfile(
      names == "plain" ? fsdp::ExampleNames::kPlain : fsdp::ExampleNames::kHostile);
  fsdp::ReportOptions options;
  options.banner = "Example: these figures were made by hand to show the page.";
  if (argc == 4) options.max_trace_bytes = std::atoll(argv[3]);
  fsdp::WrittenProfile written;
  const absl::Status status = fsdp::WriteProfileFolder(profile, options, argv[1], &written);
  if (!status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(profile, &json).ok()) return 1;
  std::ofstream(std::string(argv[1]) + "/profile.json") << json;
  std::cout << written.trace_left_out << "\n";
  return 0;
}
