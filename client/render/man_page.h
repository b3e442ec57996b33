#ifndef FSDPCTL_CLIENT_RENDER_MAN_PAGE_H_
#define FSDPCTL_CLIENT_RENDER_MAN_PAGE_H_

// Manual pages (man(7)) from the command table and from what the daemons print for --help, so that
// they cannot say anything else. Pure.

#include <string>

#include "client/cli.h"

namespace fsdp {

struct ManInfo {
  std::string version;
  // Of the page: "2026-01-31".
  std::string date;
};

// fsdpctl(1).
std::string GeneralManPage(const ManInfo& info);
// fsdpctl-VERB(1).
std::string CommandManPage(const Command& command, const ManInfo& info);
// NAME(SECTION) of the text that `NAME --help` prints: its first line is the summary, lines that
// begin with a blank stay as they are, "--flag (help); default: ..." lines become its options.
std::string ProgramManPage(const std::string& name, const std::string& section,
                           const std::string& summary, const std::string& help,
                           const ManInfo& info);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_RENDER_MAN_PAGE_H_
