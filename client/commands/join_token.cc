#include "client/commands/join_token.h"

#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/render/table.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

constexpr char kCollection[] = "joinTokens/";

std::string Minute(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixSeconds(time.seconds()),
                          absl::UTCTimeZone());
}

std::string IdOfToken(const v1::JoinToken& token) {
  return token.name().substr(sizeof(kCollection) - 1);
}

std::string Scope(const std::string& worker) {
  return worker.empty() ? "any new" : absl::StrCat(worker, ", ", worker, "-…");
}

// The token alone on standard output, so that it can go into a file.
absl::Status Make(CommandRun& run) {
  v1::CreateJoinTokenRequest request;
  request.set_worker(run.flags().GetString("worker"));
  if (run.flags().Has("expires")) {
    request.mutable_expires_after()->set_seconds(
        absl::ToInt64Seconds(run.flags().GetDuration("expires")));
  }
  ASSIGN_OR_RETURN(Client* const client, run.client());
  ASSIGN_OR_RETURN(const v1::CreateJoinTokenResponse response, client->CreateJoinToken(request));
  run.out() << response.token() << "\n";
  run.err() << "good once, until " << Minute(response.expire_time()) << ", for "
            << (request.worker().empty()
                    ? std::string("workers that have no certificate yet")
                    : absl::StrCat("worker ", request.worker(), " and ", request.worker(), "-…"))
            << "\n";
  return absl::OkStatus();
}

std::string StateOf(const v1::JoinToken& token, const Style& style) {
  switch (token.state()) {
    case v1::JOIN_TOKEN_STATE_WAITING:
      return style.Yellow("WAITING");
    case v1::JOIN_TOKEN_STATE_USED:
      return "USED";
    case v1::JOIN_TOKEN_STATE_EXPIRED:
      return style.Dim("EXPIRED");
    default:
      return "?";
  }
}

int List(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto tokens = (*client)->ListJoinTokens();
  if (!tokens.ok()) return run.Fail(tokens.status());
  std::vector<const google::protobuf::Message*> messages;
  messages.reserve(tokens->size());
  for (const v1::JoinToken& token : *tokens) messages.push_back(&token);
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintObjects(run, "joinTokens", messages, false, &exit_code)) return exit_code;
  if (run.flags().GetString("output") == "name") {
    for (const v1::JoinToken& token : *tokens) run.out() << IdOfToken(token) << "\n";
    return exit_code;
  }
  Table table({{"ID"}, {"STATE"}, {"FOR"}, {"MADE BY"}, {"EXPIRES"}, {"USED"}, {"FROM"}, {"BY"}});
  for (const v1::JoinToken& token : *tokens) {
    table.AddRow({IdOfToken(token), StateOf(token, run.out_style()), Scope(token.worker()),
                  token.creator(), Minute(token.expire_time()),
                  token.has_use_time() ? Minute(token.use_time()) : "", token.peer(),
                  absl::StrJoin(token.enrolled_workers(), ", ")});
  }
  if (table.empty()) {
    run.err() << "no join tokens\n";
  } else {
    run.out() << table.Render();
  }
  return exit_code;
}

int Revoke(CommandRun& run, const std::vector<std::string>& ids) {
  if (ids.empty()) return run.UsageError("join-token revoke takes the IDs of `join-token list`");
  for (const std::string& id : ids) {
    // A secret on a command line is one no more.
    if (absl::StartsWith(id, "fsdpjoin1.")) {
      return run.UsageError(
          "join-token revoke takes a token's ID, the second of the texts between its dots, not the "
          "token");
    }
  }
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  for (const std::string& id : ids) {
    const absl::Status revoked = (*client)->RevokeJoinToken(id);
    if (!revoked.ok()) return run.Fail(revoked);
    run.out() << "join token " << id << " revoked\n" << std::flush;
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

int RunJoinToken(CommandRun& run, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    const absl::Status status = Make(run);
    return status.ok() ? ToInt(ExitCode::kOk) : run.Fail(status);
  }
  if (arguments[0] == "list") {
    if (arguments.size() == 1) return List(run);
    return run.UsageError("join-token list takes no arguments");
  }
  if (arguments[0] == "revoke") return Revoke(run, {arguments.begin() + 1, arguments.end()});
  return run.UsageError(
      absl::StrCat("no action join-token ", arguments[0],
                   "; use list, revoke, or nothing to make one (--worker names whom it is for)"));
}

}  // namespace fsdp
