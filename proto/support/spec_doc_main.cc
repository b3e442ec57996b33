// fsdp-spec-doc: writes docs/job_spec.schema.json and docs/job_spec.md.
//
//   fsdp-spec-doc DESCRIPTOR_SET OUTPUT_FOLDER
#include <cstdio>
#include <fstream>
#include <string>

#include "proto/support/spec_descriptors.h"

namespace {

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::fprintf(stderr, "fsdp-spec-doc: %s: cannot be written\n", path.c_str());
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: fsdp-spec-doc DESCRIPTOR_SET OUTPUT_FOLDER\n");
    return 2;
  }
  const auto descriptors = fsdp::spec::SpecDescriptors::Load(argv[1]);
  if (!descriptors.ok()) {
    std::fprintf(stderr, "fsdp-spec-doc: %s\n",
                 std::string(descriptors.status().message()).c_str());
    return 1;
  }
  const std::string folder = argv[2];
  const bool written =
      WriteFile(folder + "/job_spec.schema.json", fsdp::spec::JobSchema(**descriptors)) &&
      WriteFile(folder + "/job_spec.md", fsdp::spec::JobReference(**descriptors));
  return written ? 0 : 1;
}
