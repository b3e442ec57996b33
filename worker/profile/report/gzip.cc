#include "worker/profile/report/gzip.h"

// Inputs are pointers to const.
#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fsdp::report {
namespace {

absl::Status ZlibToStatus(const char* call, int code) {
  return absl::InternalError(absl::StrCat(call, " of zlib failed with ", code));
}

}  // namespace

absl::StatusOr<std::string> Gzip(const std::string& text) {
  z_stream stream{};
  // 16 more than the window's bits: a gzip header, without a time.
  constexpr int kWindowBits = 15 + 16, kMemoryLevel = 8;
  int code = deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits, kMemoryLevel,
                          Z_DEFAULT_STRATEGY);
  if (code != Z_OK) return ZlibToStatus("deflateInit2", code);
  const absl::Cleanup end = [&] { deflateEnd(&stream); };
  std::string compressed;
  std::array<unsigned char, 1 << 16> buffer;
  std::size_t given = 0;
  do {
    // zlib counts in 32 bits.
    const std::size_t piece = std::min<std::size_t>(text.size() - given, 1U << 30);
    stream.next_in = reinterpret_cast<const unsigned char*>(text.data()) + given;
    stream.avail_in = static_cast<unsigned>(piece);
    given += piece;
    do {
      stream.next_out = buffer.data();
      stream.avail_out = static_cast<unsigned>(buffer.size());
      code = deflate(&stream, given == text.size() ? Z_FINISH : Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        return ZlibToStatus("deflate", code);
      }
      compressed.append(reinterpret_cast<const char*>(buffer.data()),
                        buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (code != Z_STREAM_END);
  return compressed;
}

}  // namespace fsdp::report
