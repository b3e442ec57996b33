#include "tests/contract/proto/transcripts/fill_message.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/contract/proto/transcripts/transcript.h"

namespace fsdp::transcripts {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A variant is a number that says which member each oneof shows: modulo the number of members, and
// the quotient goes on to the messages below. This many show every member of every oneof.
int NumVariants(const Descriptor& type) {
  int members = 1;
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    members = std::max(members, type.oneof_decl(i)->field_count());
  }
  int below = 1;
  for (int i = 0; i < type.field_count(); ++i) {
    // Messages of this API do not contain themselves.
    if (type.field(i)->message_type() != nullptr) {
      below = std::max(below, NumVariants(*type.field(i)->message_type()));
    }
  }
  return members * below;
}

void Fill(int variant, Message* message);

void SetField(const FieldDescriptor& field, int variant, Message* message) {
  const auto& r = *message->GetReflection();
  const int number = field.number();
  // Sizes that take one, several and all bytes of a varint.
  const auto whole = static_cast<std::int64_t>(number) << (7 * (number % 8));
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      many ? r.AddBool(message, &field, true) : r.SetBool(message, &field, true);
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      many ? r.AddInt32(message, &field, -number) : r.SetInt32(message, &field, -number);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      many ? r.AddInt64(message, &field, whole) : r.SetInt64(message, &field, whole);
      break;
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = 0xFFFF'FF00u + static_cast<unsigned>(number);
      many ? r.AddUInt32(message, &field, value) : r.SetUInt32(message, &field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto value = 0xFFFF'FFFF'FFFF'FF00u + static_cast<unsigned>(number);
      many ? r.AddUInt64(message, &field, value) : r.SetUInt64(message, &field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      many ? r.AddDouble(message, &field, number + 0.25)
           : r.SetDouble(message, &field, number + 0.25);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      many ? r.AddFloat(message, &field, static_cast<float>(number) + 0.25f)
           : r.SetFloat(message, &field, static_cast<float>(number) + 0.25f);
      break;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* last = field.enum_type()->value(field.enum_type()->value_count() - 1);
      many ? r.AddEnum(message, &field, last) : r.SetEnum(message, &field, last);
      break;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = absl::StrCat(field.name(), " ", number);
      if (field.type() == FieldDescriptor::TYPE_BYTES) text += std::string("\x00\xff", 2);
      many ? r.AddString(message, &field, text) : r.SetString(message, &field, text);
      break;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Fill(variant, many ? r.AddMessage(message, &field) : r.MutableMessage(message, &field));
      break;
  }
}

void Fill(int variant, Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  int members = 1;
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    members = std::max(members, type.oneof_decl(i)->field_count());
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto* oneof = field.real_containing_oneof();
    if (oneof != nullptr && field.index_in_oneof() != variant % members) continue;
    SetField(field, variant / members, message);
  }
}

}  // namespace

std::vector<std::unique_ptr<Message>> FilledMessages(const std::string& type) {
  std::vector<std::unique_ptr<Message>> messages;
  std::set<std::string> seen;
  const int variants = NumVariants(*NewMessage(type)->GetDescriptor());
  for (int variant = 0; variant < variants; ++variant) {
    std::unique_ptr<Message> message = NewMessage(type);
    Fill(variant, message.get());
    // A member without oneofs below it comes out alike for several variants.
    if (seen.insert(DeterministicBytes(*message)).second) messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace fsdp::transcripts
