#include <arpa/inet.h>

#include <array>
#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/commands/join_token.h"
#include "proto/support/status.h"
#include "proto/support/tls/authority_folder.h"
#include "proto/support/tls/certificate.h"

namespace fsdp {
namespace {

constexpr std::int64_t kAuthorityDays = 3650;
constexpr std::int64_t kCertificateDays = 365;

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

absl::Duration Validity(const CommandRun& run, std::int64_t otherwise) {
  return absl::Hours(24) * (run.flags().Has("days") ? run.flags().GetInt("days") : otherwise);
}

std::string InFolder(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

absl::Status Init(CommandRun& run) {
  const std::string folder = run.flags().GetString("dir");
  RETURN_IF_ERROR(tls::InitAuthority(folder, run.flags().GetString("name"),
                                     run.world().clock->WallNow(), Validity(run, kAuthorityDays)));
  ASSIGN_OR_RETURN(const auto authority, tls::OpenAuthority(folder));
  run.out() << InFolder(folder, tls::kAuthorityCertificate) << ": ends "
            << Day(authority->certificate().not_after) << "; give it to everybody who connects\n"
            << InFolder(folder, tls::kAuthorityKey)
            << ": keep it to yourself, whoever has it can be anybody\n";
  return absl::OkStatus();
}

bool IsAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// What a certificate of `kind` for `name` says, but for its times.
absl::StatusOr<tls::CertificateRequest> RequestFor(const std::string& kind, const std::string& name,
                                                   const std::vector<std::string>& hosts) {
  tls::CertificateRequest request{.common_name = name};
  const bool any = kind == "worker" && name.ends_with('*');
  const std::string plain = any ? name.substr(0, name.size() - 1) : name;
  if (!tls::IsIdentityName(plain) && !(any && plain.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("name \"", name,
                     "\": want 1-63 of a-z, A-Z, 0-9, '.', '_' and '-' that begin "
                     "with a letter or digit",
                     kind == "worker" ? "; '*' may end it" : ""));
  }
  for (const std::string& host : hosts) {
    (IsAddress(host) ? request.ip_addresses : request.dns_names).push_back(host);
  }
  if (kind == "server") {
    request.usage = tls::Usage::kServer;
    if (hosts.empty()) {
      return absl::InvalidArgumentError(
          "a server's certificate needs --host: every name and address that clients use for it");
    }
    return request;
  }
  if (kind != "user" && kind != "worker") {
    return absl::InvalidArgumentError(
        absl::StrCat("no kind ", kind, " of certificate; use server, user or worker"));
  }
  request.uris.push_back(
      absl::StrCat(ToAbsl(kind == "user" ? tls::kUserUri : tls::kWorkerUri), name));
  return request;
}

absl::Status Issue(CommandRun& run, const std::string& kind, const std::string& name) {
  ASSIGN_OR_RETURN(tls::CertificateRequest request,
                   RequestFor(kind, name, run.flags().GetStrings("host")));
  const std::string folder = run.flags().GetString("dir");
  ASSIGN_OR_RETURN(const auto authority, tls::OpenAuthority(folder));
  const absl::Time now = run.world().clock->WallNow();
  request.not_before = now - tls::kClockSlack;
  request.not_after = now + Validity(run, kCertificateDays);
  tls::KeyPair pair;
  ASSIGN_OR_RETURN(pair.key, tls::NewKey());
  ASSIGN_OR_RETURN(pair.certificate, authority->Issue(request, pair.key));
  // The authority goes along, so that a worker that enrols can tell it by its fingerprint.
  pair.certificate += authority->certificate_pem();
  const std::string out = run.flags().Has("out") ? run.flags().GetString("out") : folder;
  // A '*' in a file's name would surprise shells.
  const std::string file = absl::StrReplaceAll(name, {{"*", "any"}});
  const std::string certificate = InFolder(out, absl::StrCat(file, ".crt"));
  const std::string key = InFolder(out, absl::StrCat(file, ".key"));
  RETURN_IF_ERROR(tls::WritePair(certificate, key, pair));
  run.out() << certificate << ": ends " << Day(request.not_after) << "\n"
            << key << ": its private key\n";
  return absl::OkStatus();
}

// The same names, the same key, new times.
absl::Status Renew(CommandRun& run, const std::string& path) {
  ASSIGN_OR_RETURN(const auto authority, tls::OpenAuthority(run.flags().GetString("dir")));
  ASSIGN_OR_RETURN(const std::string old, tls::ReadTextFile(path));
  const auto chain = tls::ReadCertificates(old);
  if (!chain.ok()) return Annotate(chain.status(), path);
  const tls::Certificate& certificate = chain->front();
  if (certificate.issuer != authority->certificate().subject || certificate.is_authority) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " was made by ", certificate.issuer, ", and ", run.flags().GetString("dir"), " is ",
        authority->certificate().subject, ": name the right --dir"));
  }
  const absl::Time now = run.world().clock->WallNow();
  const bool identity = !certificate.uris.empty();
  const bool host = !certificate.dns_names.empty() || !certificate.ip_addresses.empty();
  tls::CertificateRequest request{.common_name = certificate.common_name,
                                  .dns_names = certificate.dns_names,
                                  .ip_addresses = certificate.ip_addresses,
                                  .uris = certificate.uris,
                                  .usage = identity ? tls::Usage::kClient : tls::Usage::kServer,
                                  .not_before = now - tls::kClockSlack,
                                  .not_after = now + Validity(run, kCertificateDays)};
  if (identity && host) request.usage = tls::Usage::kServerAndClient;
  ASSIGN_OR_RETURN(std::string renewed, authority->Issue(request, old));
  renewed += authority->certificate_pem();
  RETURN_IF_ERROR(tls::WriteTextFile(path, renewed, 0644));
  run.out() << path << ": ends " << Day(request.not_after)
            << "; programs that use it notice by themselves\n";
  return absl::OkStatus();
}

std::vector<std::string> Lines(const tls::Certificate& certificate, absl::Time now) {
  std::vector<std::string> names = certificate.dns_names;
  names.insert(names.end(), certificate.ip_addresses.begin(), certificate.ip_addresses.end());
  names.insert(names.end(), certificate.uris.begin(), certificate.uris.end());
  const absl::Duration left = certificate.not_after - now;
  const std::string when = left <= absl::ZeroDuration()
                               ? "ENDED"
                               : absl::StrCat("in ", absl::ToInt64Hours(left) / 24, " days");
  return {absl::StrCat("subject:      ", certificate.subject),
          absl::StrCat("issuer:       ", certificate.issuer),
          absl::StrCat("names:        ", names.empty() ? "none" : absl::StrJoin(names, ", ")),
          absl::StrCat("begins:       ", Day(certificate.not_before)),
          absl::StrCat("ends:         ", Day(certificate.not_after), " (", when, ")"),
          absl::StrCat("authority:    ", certificate.is_authority ? "yes" : "no"),
          absl::StrCat("serial:       ", certificate.serial),
          absl::StrCat("fingerprint:  sha256:", certificate.fingerprint)};
}

absl::Status Show(CommandRun& run, const std::vector<std::string>& paths) {
  const absl::Time now = run.world().clock->WallNow();
  std::vector<std::string> files = paths;
  if (files.empty()) {
    files.push_back(InFolder(run.flags().GetString("dir"), tls::kAuthorityCertificate));
  }
  for (const std::string& path : files) {
    ASSIGN_OR_RETURN(const std::string pem, tls::ReadTextFile(path));
    const auto chain = tls::ReadCertificates(pem);
    if (!chain.ok()) return Annotate(chain.status(), path);
    for (const tls::Certificate& certificate : *chain) {
      run.out() << path << "\n";
      for (const std::string& line : Lines(certificate, now)) run.out() << "  " << line << "\n";
    }
  }
  return absl::OkStatus();
}

int Run(CommandRun& run) {
  const std::vector<std::string>& given = run.flags().positional();
  const std::string& action = given.front();
  const std::vector<std::string> rest(given.begin() + 1, given.end());
  if (run.flags().Has("output") && (action != "join-token" || rest.empty() || rest[0] != "list")) {
    return run.UsageError("--output goes with join-token list alone");
  }
  absl::Status status;
  if (action == "init") {
    if (!rest.empty()) return run.UsageError("init takes no arguments; --dir names the folder");
    status = Init(run);
  } else if (action == "issue") {
    if (rest.size() != 2) return run.UsageError("issue takes server, user or worker, and a NAME");
    status = Issue(run, rest[0], rest[1]);
  } else if (action == "renew") {
    if (rest.size() != 1) return run.UsageError("renew takes one certificate FILE");
    status = Renew(run, rest[0]);
  } else if (action == "show") {
    status = Show(run, rest);
  } else if (action == "join-token") {
    return RunJoinToken(run, rest);
  } else {
    return run.UsageError(
        absl::StrCat("no action ", action, "; use init, issue, show, renew or join-token"));
  }
  return status.ok() ? ToInt(ExitCode::kOk) : run.Fail(status);
}

}  // namespace

Command CaCommand() {
  Command command;
  command.name = "ca";
  command.summary = "Make and renew the certificates of a cluster";
  command.arguments = "init|issue|show|renew|join-token [KIND NAME|FILE...|list|revoke ID...]";
  command.argument_kind = ArgumentKind::kFile;
  command.actions = {"init", "issue", "show", "renew", "join-token"};
  command.min_arguments = 1;
  command.max_arguments = -1;
  command.description =
      "  init                a new authority in --dir: ca.crt and ca.key\n"
      "  issue server NAME   for a coordinator or an endpoint; --host names what clients dial\n"
      "  issue user NAME     for a person or program that calls the API\n"
      "  issue worker NAME   for the worker daemon of this id; NAME* for all that begin so\n"
      "  show [FILE...]      what certificates say; default the authority's\n"
      "  renew FILE          the same names and key, from now on; programs notice by themselves\n"
      "  join-token          from the coordinator: lets one host in, once (fsdp-worker enroll)\n"
      "  join-token list     those that wait, were used (from where, for which workers) or "
      "expired\n"
      "  join-token revoke ID...  those that wait are good for nothing any more\n"
      "issue writes NAME.crt (with the authority's after it) and NAME.key, \"any\" in place of *.\n"
      "Keys are EC P-256 and readable by their owner alone. All but join-token work without a "
      "coordinator.";
  command.flags = {{.name = "dir",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Folder of the authority",
                    .default_value = "ca"},
                   {.name = "name",
                    .kind = FlagKind::kString,
                    .value_name = "NAME",
                    .help = "Of the authority (init)",
                    .default_value = "fsdp-ca"},
                   {.name = "host",
                    .kind = FlagKind::kString,
                    .value_name = "HOST",
                    .help = "DNS name or IP address in the certificate (issue)",
                    .repeated = true},
                   {.name = "out",
                    .kind = FlagKind::kFile,
                    .value_name = "DIR",
                    .help = "Folder that NAME.crt and NAME.key go to (issue); default --dir"},
                   {.name = "worker",
                    .kind = FlagKind::kString,
                    .value_name = "ID",
                    .help = "The token is for this worker and ID-…, also if they have a "
                            "certificate; default any that have none (join-token)"},
                   {.name = "expires",
                    .kind = FlagKind::kDuration,
                    .value_name = "DURATION",
                    .help = "How long the token waits to be used, at most 720h; default 1h "
                            "(join-token)"},
                   {.name = "days",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "How long it is good; default 3650 (init), 365 (issue, renew)",
                    .min_value = 1,
                    .max_value = 36500},
                   ObjectOutputFlag({"table", "json", "yaml", "name"}, *v1::JoinToken::descriptor(),
                                    false, "joinTokens")};
  command.examples = {
      {"fsdpctl ca init --dir ca", "once per cluster"},
      {"fsdpctl ca issue server coordinator --host coordinator.example.org --host 10.0.0.1",
       "for fsdp-coordinator --tls-certificate"},
      {"fsdpctl ca issue user alice --out ~/.config/fsdpctl", "for fsdpctl --tls-certificate"},
      {"fsdpctl ca show coordinator.crt", "names and end"},
      {"fsdpctl ca join-token --worker node1 > node1.token", "for fsdp-worker enroll on node1"},
      {"fsdpctl ca join-token revoke 3f9a0c41d2e7", "it was lost on the way"},
      {"fsdpctl ca renew ca/coordinator.crt", "before it ends; no restart"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
