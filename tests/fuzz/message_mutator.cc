// Changes of messages by their fields: most of what a byte changed at random makes is refused by
// the parser, before the code under test sees it.

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "google/protobuf/descriptor.pb.h"
#include "tests/fuzz/fuzz_support.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fsdp::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Random = std::mt19937;

constexpr std::size_t kMaxText = 300;

std::size_t Below(std::size_t limit, Random& random) { return random() % limit; }

// Ends of ranges, and what lies near zero, where most checks are.
std::int64_t Number(Random& random) {
  static constexpr std::int64_t kEdges[] = {
      std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
      std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), -1};
  if (Below(3, random) == 0) return kEdges[Below(std::size(kEdges), random)];
  return static_cast<std::int64_t>(Below(8, random));
}

double Fraction(Random& random) {
  static constexpr double kEdges[] = {std::numeric_limits<double>::quiet_NaN(),
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      1e300,
                                      -1.5,
                                      0};
  if (Below(2, random) == 0) return kEdges[Below(std::size(kEdges), random)];
  return static_cast<double>(Below(1000, random)) / 64;
}

std::string Bytes(std::string text, Random& random) {
  const std::size_t size = text.size();
  text.resize(std::max(size + 8, std::size_t{16}));
  if (text.size() > kMaxText) text.resize(kMaxText);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()),
                               std::min(size, text.size()), text.size()));
  // Text that is not UTF-8 is refused by the parser of proto3.
  for (char& c : text) c = static_cast<char>(c & 0x7f);
  return Below(8, random) == 0 ? std::string() : text;
}

template <typename T, typename Set, typename Add>
void Put(bool repeated, Set set, Add add, T value) {
  if (repeated) {
    add(value);
  } else {
    set(value);
  }
}

void SetScalar(Message* message, const FieldDescriptor* field, Random& random) {
  const auto* reflection = message->GetReflection();
  const bool many = field->is_repeated();
#define FSDP_FUZZ_PUT(Name, value)                                     \
  return Put(                                                          \
      many, [&](auto v) { reflection->Set##Name(message, field, v); }, \
      [&](auto v) { reflection->Add##Name(message, field, v); }, (value))
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      FSDP_FUZZ_PUT(Int32, static_cast<std::int32_t>(Number(random)));
    case FieldDescriptor::CPPTYPE_INT64:
      FSDP_FUZZ_PUT(Int64, Number(random));
    case FieldDescriptor::CPPTYPE_UINT32:
      FSDP_FUZZ_PUT(UInt32, static_cast<std::uint32_t>(Number(random)));
    case FieldDescriptor::CPPTYPE_UINT64:
      FSDP_FUZZ_PUT(UInt64, static_cast<std::uint64_t>(Number(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      FSDP_FUZZ_PUT(Double, Fraction(random));
    case FieldDescriptor::CPPTYPE_FLOAT:
      FSDP_FUZZ_PUT(Float, static_cast<float>(Fraction(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      FSDP_FUZZ_PUT(Bool, Below(2, random) == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      FSDP_FUZZ_PUT(EnumValue, static_cast<int>(Below(24, random)));
    case FieldDescriptor::CPPTYPE_STRING: {
      const bool set = !many && reflection->HasField(*message, field);
      FSDP_FUZZ_PUT(String,
                    Bytes(set ? reflection->GetString(*message, field) : std::string(), random));
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
#undef FSDP_FUZZ_PUT
}

void MutateField(Message* message, Random& random) {
  const auto* descriptor = message->GetDescriptor();
  if (descriptor->field_count() == 0) return;
  const FieldDescriptor* field =
      descriptor->field(static_cast<int>(Below(descriptor->field_count(), random)));
  const auto* reflection = message->GetReflection();
  if (field->is_map()) return;
  if (Below(4, random) == 0) return reflection->ClearField(message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return SetScalar(message, field, random);
  }
  Message* inner = field->is_repeated() ? reflection->AddMessage(message, field)
                                        : reflection->MutableMessage(message, field);
  for (int i = 0; i < 3; ++i) MutateField(inner, random);
}

void MutateSomewhere(Message* message, Random& random) {
  std::vector<Message*> all;
  VisitMessages(message, [&](Message* inner) {
    if (!inner->GetDescriptor()->options().map_entry()) all.push_back(inner);
  });
  MutateField(all[Below(all.size(), random)], random);
}

// Bytes that are no such message are changed as bytes.
std::string Mutated(const Message& prototype, std::string bytes, Random& random) {
  const std::unique_ptr<Message> message(prototype.New());
  if (!message->ParseFromString(bytes)) return Bytes(std::move(bytes), random);
  for (std::size_t times = 1 + Below(4, random); times > 0; --times) {
    MutateSomewhere(message.get(), random);
  }
  return message->SerializeAsString();
}

void AppendFrame(std::string_view payload, std::string* to) {
  for (int shift = 0; shift < 32; shift += 8) {
    *to += static_cast<char>(payload.size() >> shift & 0xff);
  }
  to->append(payload);
}

std::size_t Store(std::string_view bytes, std::uint8_t* data, std::size_t size,
                  std::size_t max_size) {
  // Too long: libFuzzer's own change of what was there.
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

std::size_t MutateFrames(const Message& prototype, std::uint8_t* data, std::size_t size,
                         std::size_t max_size, unsigned seed) {
  Random random(seed);
  std::vector<std::string> frames = Frames(Text(data, size));
  if (frames.empty() || Below(16, random) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t at = Below(frames.size(), random);
  switch (Below(8, random)) {
    case 0:
      frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1: {
      const std::string again = frames[at];
      frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(Below(frames.size() + 1, random)),
                    again);
      break;
    }
    case 2:
      std::swap(frames[at], frames[Below(frames.size(), random)]);
      break;
    case 3:
      frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(at),
                    Mutated(prototype, "", random));
      break;
    default:
      frames[at] = Mutated(prototype, std::move(frames[at]), random);
  }
  std::string bytes;
  for (const std::string& frame : frames) AppendFrame(frame, &bytes);
  return Store(bytes, data, size, max_size);
}

std::size_t MutateMessage(const Message& prototype, std::uint8_t* data, std::size_t size,
                          std::size_t max_size, unsigned seed) {
  Random random(seed);
  if (Below(16, random) == 0) return LLVMFuzzerMutate(data, size, max_size);
  return Store(Mutated(prototype, std::string(Text(data, size)), random), data, size, max_size);
}

}  // namespace fsdp::fuzz
