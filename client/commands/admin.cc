#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/beside.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/table.h"
#include "proto/support/access_file.h"
#include "proto/support/access_token.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

// Written whole or not at all, and not to be read by others.
absl::Status WritePrivately(const std::string& path, const std::string& text, int extra_flags,
                            mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | extra_flags, mode);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  const bool good = written == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (good) return absl::OkStatus();
  ::unlink(path.c_str());
  return ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

// With the entry at its end. The coordinator never sees half of it.
absl::Status AppendEntry(const std::string& path, const AccessEntry& entry) {
  std::string text;
  mode_t mode = 0600;
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    mode = info.st_mode & 0777;
    std::ifstream in(path, std::ios::binary);
    if (!in) return ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (!text.empty() && text.back() != '\n') text += '\n';
    const bool blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
    if (blank) {
      text.clear();
    } else {
      // What is wrong already is not the new entry's fault.
      RETURN_IF_ERROR(ParseAccessFile(text, path).status());
    }
  } else if (errno != ENOENT) {
    return ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  if (text.empty()) text = "identities:\n";
  text += RenderAccessEntry(entry);
  if (const auto parsed = ParseAccessFile(text, path); !parsed.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " cannot be added to (", parsed.status().message(),
                     "): its list must be its last key, one \"  - name: ...\" a line"));
  }
  const std::string beside = absl::StrCat(path, ".", ::getpid(), ".tmp");
  RETURN_IF_ERROR(WritePrivately(beside, text, O_TRUNC, mode));
  if (std::rename(beside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  ::unlink(beside.c_str());
  return ErrnoToStatus(error, absl::StrCat("cannot replace ", path));
}

// "2027-01-01T00:00:00Z", or a duration from now on.
absl::StatusOr<absl::Time> ParseExpiry(const std::string& text, absl::Time now) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    const auto duration = ParseDurationText(text);
    if (!duration.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--expires ", text,
                       ": want a duration such as 720h, or a time such as "
                       "2027-01-01T00:00:00Z"));
    }
    time = now + *duration;
  }
  if (time > now) return time;
  return absl::InvalidArgumentError(absl::StrCat("--expires ", text, " is over already"));
}

absl::StatusOr<AccessEntry> EntryFromFlags(const ParsedFlags& flags, absl::Time now) {
  AccessEntry entry;
  entry.name = flags.GetString("name");
  if (!IsSubjectName(entry.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name '", entry.name,
                     "': want 1-63 characters of [A-Za-z0-9._@-], other than anonymous"));
  }
  if (!flags.Has("role")) {
    return absl::InvalidArgumentError(
        "give --role: viewer, submitter, operator, admin, or worker for fsdp-worker");
  }
  Grant grant{.role = *RoleFromName(flags.GetString("role")), .queues = flags.GetStrings("queue")};
  for (const std::string& queue : grant.queues) {
    if (!IsQueueName(queue)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--queue ", queue, " is no queue's name: want 1-63 of a-z, 0-9 and -"));
    }
  }
  if (!grant.queues.empty() && (grant.role == Role::kAdmin || grant.role == Role::kWorker)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--queue: the role ", flags.GetString("role"), " is for all queues"));
  }
  entry.grants.push_back(std::move(grant));
  if (flags.Has("expires")) {
    ASSIGN_OR_RETURN(entry.expires, ParseExpiry(flags.GetString("expires"), now));
  }
  return entry;
}

int CreateToken(CommandRun& run) {
  const ParsedFlags& flags = run.flags();
  auto entry = EntryFromFlags(flags, run.world().clock->WallNow());
  if (!entry.ok()) return run.UsageError(std::string(entry.status().message()));
  const std::string token = NewToken();
  entry->token_sha256 = TokenHash(token);
  // The token's file first: an entry without its token would be of no use to anybody.
  if (flags.Has("to")) {
    const absl::Status written = WritePrivately(flags.GetString("to"), token + "\n", O_EXCL, 0600);
    if (!written.ok()) return run.Fail(written);
  }
  if (flags.Has("access")) {
    const absl::Status added = AppendEntry(flags.GetString("access"), *entry);
    if (!added.ok()) {
      if (flags.Has("to")) ::unlink(flags.GetString("to").c_str());
      return run.Fail(added);
    }
  } else {
    run.err() << "for the coordinator's access file, below `identities:`\n"
              << RenderAccessEntry(*entry);
  }
  if (!flags.Has("to")) run.out() << token << "\n";
  return ToInt(ExitCode::kOk);
}

std::string GrantsText(const AccessEntry& entry) {
  std::vector<std::string> texts;
  texts.reserve(entry.grants.size());
  for (const Grant& grant : entry.grants) {
    texts.push_back(absl::StrCat(
        ToAbsl(RoleName(grant.role)),
        grant.queues.empty() ? "" : absl::StrCat(" in ", absl::StrJoin(grant.queues, ", "))));
  }
  return absl::StrJoin(texts, "; ");
}

Table RevokedTable(const std::vector<RevokedCertificate>& revoked) {
  Table table({{"REVOKED"}, {"ISSUED BEFORE"}});
  for (const RevokedCertificate& one : revoked) {
    const bool any = one.issued_before == absl::InfiniteFuture();
    table.AddRow(
        {!one.serial.empty()        ? absl::StrCat("serial ", one.serial)
         : !one.fingerprint.empty() ? absl::StrCat("sha256:", one.fingerprint)
                                    : one.certificate,
         any ? "any time"
             : absl::FormatTime(absl::RFC3339_sec, one.issued_before, absl::UTCTimeZone())});
  }
  return table;
}

int CheckAccess(CommandRun& run, const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return run.Fail(ErrnoToStatus(errno, absl::StrCat("cannot read ", path)));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto file = ParseAccessFile(text, path);
  if (!file.ok()) return run.Fail(file.status());
  const absl::Time now = run.world().clock->WallNow();
  Table table({{"NAME"}, {"BY"}, {"EXPIRES"}, {"MAY"}});
  for (const AccessEntry& entry : file->entries) {
    std::string expires = "never";
    if (entry.expires != absl::InfiniteFuture()) {
      expires = absl::FormatTime(absl::RFC3339_sec, entry.expires, absl::UTCTimeZone());
      if (entry.expires <= now) absl::StrAppend(&expires, " (over)");
    }
    // The first digits tell tokens of one name apart.
    table.AddRow({entry.name,
                  entry.certificate.empty()
                      ? absl::StrCat("token ", entry.token_sha256.substr(0, 8))
                      : entry.certificate,
                  expires, GrantsText(entry)});
  }
  if (table.empty()) {
    run.out() << "no identities: nobody may call\n";
  } else {
    run.out() << table.Render();
  }
  if (!file->revoked.empty()) run.out() << "\n" << RevokedTable(file->revoked).Render();
  return ToInt(ExitCode::kOk);
}

// fsdp-coordinator has the store, which this program does not link; it checks the values.
int RunStoreVerb(CommandRun& run, const std::string& verb) {
  std::vector<std::string> arguments = {verb};
  for (const char* name : {"state-dir", "from", "to"}) {
    if (run.flags().Has(name)) {
      arguments.push_back(absl::StrCat("--", name, "=", run.flags().GetString(name)));
    }
  }
  return RunBeside(run, "fsdp-coordinator", arguments, absl::StrCat("admin ", verb));
}

int Run(CommandRun& run) {
  const std::vector<std::string>& given = run.flags().positional();
  if (given[0] == "backup" || given[0] == "restore") {
    if (given.size() == 1) return RunStoreVerb(run, given[0]);
    return run.UsageError(absl::StrCat("unexpected argument \"", given[1], "\""));
  }
  if (given[0] == "create-token") {
    if (given.size() == 1) return CreateToken(run);
    return run.UsageError(absl::StrCat("unexpected argument \"", given[1], "\""));
  }
  if (given[0] == "check-access") {
    if (given.size() == 2) return CheckAccess(run, given[1]);
    return run.UsageError("check-access takes the access file");
  }
  return run.UsageError(
      absl::StrCat("no action ", given[0], "; use create-token, check-access, backup or restore"));
}

}  // namespace

Command AdminCommand() {
  Command command;
  command.name = "admin";
  command.summary = "Make tokens, check the access file, back up the coordinator's jobs";
  command.arguments = "create-token|check-access|backup|restore [FILE]";
  command.argument_kind = ArgumentKind::kFile;
  command.actions = {"create-token", "check-access", "backup", "restore"};
  command.min_arguments = 1;
  command.max_arguments = 2;
  command.description =
      "  create-token        prints a new token, once, and its entry for the coordinator's access\n"
      "                      file, which has the token's hash alone\n"
      "  check-access FILE   what is wrong with an access file, or who may do what by it\n"
      "  backup              copies the jobs of --state-dir to the new file --to, with its "
      "checksum\n"
      "                      beside it; also while the coordinator serves, on its machine\n"
      "  restore             puts the backup --from into an empty --state-dir\n"
      "None asks a coordinator. It takes a changed access file within a second.";
  command.flags = {{.name = "name",
                    .kind = FlagKind::kString,
                    .value_name = "NAME",
                    .help = "Whose token; owner of the jobs that are submitted with it"},
                   {.name = "role",
                    .kind = FlagKind::kChoice,
                    .help = "What it may do; each of the first four what those before it may, too",
                    .choices = {"viewer", "submitter", "operator", "admin", "worker"}},
                   {.name = "queue",
                    .kind = FlagKind::kString,
                    .value_name = "QUEUE",
                    .help = "Only in this queue; may be given several times",
                    .repeated = true,
                    .live = LiveNames::kQueues},
                   {.name = "expires",
                    .kind = FlagKind::kString,
                    .value_name = "WHEN",
                    .help = "A duration (720h) or a time (2027-01-01T00:00:00Z); default never"},
                   {.name = "access",
                    .kind = FlagKind::kFile,
                    .value_name = "FILE",
                    .help = "Add the entry to this access file instead of printing it"},
                   {.name = "to",
                    .kind = FlagKind::kFile,
                    .value_name = "FILE",
                    .help = "create-token: write the token to this new file, for its owner's "
                            "eyes, instead of printing it; backup: the new file"},
                   {.name = "state-dir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "backup, restore: the coordinator's --state-dir"},
                   {.name = "from",
                    .kind = FlagKind::kFile,
                    .value_name = "FILE",
                    .help = "restore: the backup"}};
  command.examples = {
      {"fsdpctl admin create-token --name alice --role submitter --queue research --expires 2160h "
       "--access access.yaml --to alice.token",
       "alice submits to one queue for 90 days"},
      {"fsdpctl admin create-token --name gpu-hosts --role worker", "for fsdp-worker --token-file"},
      {"fsdpctl admin check-access access.yaml", "who may do what"},
      {"fsdpctl admin backup --state-dir /var/lib/fsdp-coordinator --to jobs.backup",
       "one file of one moment"},
      {"fsdpctl admin restore --from jobs.backup --state-dir ./state", "into an empty folder"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
