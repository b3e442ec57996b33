#include "coordinator/store/sqlite.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status.h"

namespace fsdp::coordinator {

absl::Status SqliteToStatus(int code, sqlite3* connection, std::string_view call) {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return absl::OkStatus();
  std::string message = absl::StrCat("sqlite: ", ToAbsl(call), ": ", sqlite3_errstr(code));
  if (connection != nullptr && sqlite3_errmsg(connection) != std::string(sqlite3_errstr(code))) {
    absl::StrAppend(&message, " (", sqlite3_errmsg(connection), ")");
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

SqliteStatement& SqliteStatement::Bind(int index, std::int64_t value) {
  sqlite3_bind_int64(statement_.get(), index, value);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, const std::string& text) {
  sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int index, const std::string& bytes) {
  sqlite3_bind_blob64(statement_.get(), index, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}

absl::Status SqliteStatement::Run() {
  const int code = sqlite3_step(statement_.get());
  absl::Status status =
      SqliteToStatus(code, sqlite3_db_handle(statement_.get()), sqlite3_sql(statement_.get()));
  Reset();
  return status;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  absl::Status status =
      SqliteToStatus(code, sqlite3_db_handle(statement_.get()), sqlite3_sql(statement_.get()));
  Reset();
  if (!status.ok()) return status;
  return false;
}

void SqliteStatement::Reset() { sqlite3_reset(statement_.get()); }

std::int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string SqliteStatement::Text(int column) const { return std::string(Blob(column)); }

std::string_view SqliteStatement::Blob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  return {data, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

absl::StatusOr<SqliteConnection> SqliteConnection::Open(const std::string& path, bool read_only) {
  sqlite3* raw = nullptr;
  const int flags =
      (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) |
      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  SqliteConnection connection;
  connection.connection_.reset(raw);
  if (code != SQLITE_OK) return SqliteToStatus(code, raw, "open " + path);
  sqlite3_busy_timeout(raw, 5000);
  return connection;
}

absl::Status SqliteConnection::Execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return SqliteToStatus(code, connection_.get(), sql.substr(0, 80));
}

absl::StatusOr<SqliteStatement> SqliteConnection::Prepare(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.c_str(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  SqliteStatement statement;
  statement.statement_.reset(raw);
  RETURN_IF_ERROR(SqliteToStatus(code, connection_.get(), sql));
  return statement;
}

absl::StatusOr<std::int64_t> SqliteConnection::QueryInt(const std::string& sql) {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  return found ? statement.Int(0) : 0;
}

absl::StatusOr<std::string> SqliteConnection::QueryText(const std::string& sql) {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  return found ? statement.Text(0) : std::string();
}

absl::Status SqliteConnection::CopyTo(SqliteConnection& to) {
  sqlite3_backup* const backup =
      sqlite3_backup_init(to.connection_.get(), "main", connection_.get(), "main");
  if (backup == nullptr) {
    return SqliteToStatus(sqlite3_errcode(to.connection_.get()), to.connection_.get(), "backup");
  }
  constexpr int kAllPages = -1;
  sqlite3_backup_step(backup, kAllPages);
  const int code = sqlite3_backup_finish(backup);
  return SqliteToStatus(code, to.connection_.get(), "backup");
}

}  // namespace fsdp::coordinator
