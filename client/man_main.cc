// Writes the manual pages:
//   fsdp-man DIR DATE                       fsdpctl.1 and a page for each verb
//   fsdp-man DIR DATE NAME SECTION SUMMARY  NAME.SECTION of NAME's --help, from standard input

#include <fstream>
#include <iostream>
#include <iterator>

#include "client/render/man_page.h"

namespace {

bool Write(const std::string& folder, const std::string& page, const std::string& text) {
  const std::string path = folder + "/" + page;
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) std::cerr << "fsdp-man: cannot write " << path << "\n";
  return static_cast<bool>(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 6) {
    std::cerr << "usage: fsdp-man DIR DATE [NAME SECTION SUMMARY <HELP]\n";
    return 2;
  }
  const std::string folder = argv[1];
  const fsdp::ManInfo info{.version = FSDPCTL_VERSION, .date = argv[2]};
  if (argc == 6) {
    const std::string help{std::istreambuf_iterator<char>(std::cin), {}};
    if (help.empty()) {
      std::cerr << "fsdp-man: " << argv[3] << " --help says nothing\n";
      return 1;
    }
    const std::string page = std::string(argv[3]) + "." + argv[4];
    return Write(folder, page, fsdp::ProgramManPage(argv[3], argv[4], argv[5], help, info)) ? 0 : 1;
  }
  bool good = Write(folder, "fsdpctl.1", fsdp::GeneralManPage(info));
  for (const auto& command : fsdp::Commands()) {
    good = Write(folder, "fsdpctl-" + command.name + ".1", fsdp::CommandManPage(command, info)) &&
           good;
  }
  return good ? 0 : 1;
}
