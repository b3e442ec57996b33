#ifndef FSDPCTL_COORDINATOR_STORE_SQLITE_H_
#define FSDPCTL_COORDINATOR_STORE_SQLITE_H_

// The translator of SQLite: a connection and its prepared statements. Not thread-safe: one thread
// at a time uses a connection and its statements.
//
// Errors: SQLITE_FULL -> RESOURCE_EXHAUSTED, SQLITE_CORRUPT/NOTADB -> DATA_LOSS, SQLITE_BUSY/LOCKED
// -> UNAVAILABLE, SQLITE_CANTOPEN/READONLY/PERM -> PERMISSION_DENIED, others INTERNAL; the message
// carries the statement.

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp::coordinator {

absl::Status SqliteToStatus(int code, sqlite3* connection, std::string_view call);

// A prepared statement. Bound text and blobs are copied. Columns and parameters count from 0 and 1.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  SqliteStatement& Bind(int index, std::int64_t value);
  SqliteStatement& Bind(int index, const std::string& text);
  SqliteStatement& BindBlob(int index, const std::string& bytes);

  // Runs to the end and resets.
  absl::Status Run();
  // True: a row is there. False: the end was reached, and the statement is reset.
  absl::StatusOr<bool> Step();
  void Reset();

  [[nodiscard]] std::int64_t Int(int column) const;
  [[nodiscard]] std::string Text(int column) const;
  // Valid until the next Step or Reset.
  [[nodiscard]] std::string_view Blob(int column) const;

 private:
  friend class SqliteConnection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class SqliteConnection {
 public:
  static absl::StatusOr<SqliteConnection> Open(const std::string& path, bool read_only);

  // One or more statements without results.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  // The first column of the first row; 0 when there is none.
  absl::StatusOr<std::int64_t> QueryInt(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);
  // All pages as they are now, into the empty database `to`. Who writes meanwhile is not held up.
  absl::Status CopyTo(SqliteConnection& to);

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_STORE_SQLITE_H_
