#ifndef FSDPCTL_PROTO_SUPPORT_RECORDING_PIECES_H_
#define FSDPCTL_PROTO_SUPPORT_RECORDING_PIECES_H_

// A rank's recording in pieces, appended to a file step by step, so that a rank that is killed
// leaves what it had. A piece is its length (4 bytes, little-endian) and a RankProfile that goes on
// where the pieces before it ended: strings, spans, steps and notes follow theirs, counters those
// of the same name; families and single fields replace what was. Thread-safe (no state).

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// Where the pieces of the recording that will be at `path` lie.
std::string PiecesPath(const std::string& path);

std::string RecordingPiece(const v1::RankProfile& piece);

// The recording of all pieces, its spans in order. A last piece that is torn is left out.
//   DATA_LOSS  there is none that is whole
absl::StatusOr<v1::RankProfile> JoinRecordingPieces(std::string_view bytes);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_RECORDING_PIECES_H_
