#ifndef FSDPCTL_CLIENT_COMMANDS_COMPLETION_PLAN_H_
#define FSDPCTL_CLIENT_COMMANDS_COMPLETION_PLAN_H_

// What may come next on a command line, from the table that parses it. Pure: names that only the
// coordinator knows are asked for by whoever holds the plan.

#include <string>
#include <vector>

#include "client/cli.h"

namespace fsdp {

struct CompletionWord {
  std::string word;
  // Shown beside it; may be empty.
  std::string help;
};

struct CompletionPlan {
  // What has been typed of the word so far, less `prefix`.
  std::string typed;
  // Goes before every candidate: "--output=".
  std::string prefix;
  std::vector<CompletionWord> words;
  // A path: the shell knows.
  bool files = false;
  LiveNames live = LiveNames::kNone;
  // Of these, the ones that are there already.
  std::vector<std::string> taken;
  // --server and the like, as given so far.
  SettingFlags settings;
};

// `words` as typed behind "fsdpctl"; the last one is being typed and may be empty.
CompletionPlan PlanCompletion(const std::vector<std::string>& words);

// `fsdpctl __complete -- WORDS...`, which the scripts of `fsdpctl completion` call: ":files", or
// ":words" and then a candidate a line with its help behind a tab. What goes wrong prints no
// candidates; always exit code 0.
int RunCompletion(const std::vector<std::string>& words, const CliWorld& world);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_COMPLETION_PLAN_H_
