#include "client/render/json_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/render/json_path_parts.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"

namespace fsdp {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;
using Part = JsonPath::Part;
using Step = JsonPath::Step;

// ---- What can be there

// The kind of value that a path leads to.
struct Shape {
  enum class Kind { kMessage, kMap, kLeaf, kRoot };
  Kind kind = Kind::kLeaf;
  bool is_list = false;
  // Of kMessage; of kRoot the list's items.
  const Descriptor* type = nullptr;
  // Of kRoot: its only key.
  std::string list_key;
};

bool IsObject(const Descriptor* type) {
  return type != nullptr && type->well_known_type() == Descriptor::WELLKNOWNTYPE_UNSPECIFIED;
}

Shape ShapeOf(const FieldDescriptor& field) {
  if (field.is_map()) return {.kind = Shape::Kind::kMap};
  Shape shape{.is_list = field.is_repeated()};
  if (IsObject(field.message_type())) {
    shape.kind = Shape::Kind::kMessage;
    shape.type = field.message_type();
  }
  return shape;
}

absl::Status ShapeError(const Step& step, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("jsonpath at ", step.position, ": ", what));
}

absl::StatusOr<Shape> FieldShape(const Step& step, const Shape& from) {
  if (from.is_list) {
    return ShapeError(step, absl::StrCat("this is a list; write [*] or [0] before .", step.name));
  }
  switch (from.kind) {
    case Shape::Kind::kMap:
      return Shape{};
    case Shape::Kind::kRoot:
      if (step.name == from.list_key) {
        return Shape{.kind = Shape::Kind::kMessage, .is_list = true, .type = from.type};
      }
      return ShapeError(step, absl::StrCat("there is only .", from.list_key, "; write {.",
                                           from.list_key, "[*].", step.name, "}"));
    case Shape::Kind::kLeaf:
      return ShapeError(step, absl::StrCat("this is one value without a field ", step.name));
    case Shape::Kind::kMessage:
      break;
  }
  std::vector<std::string> names;
  for (int i = 0; i < from.type->field_count(); ++i) {
    const FieldDescriptor& field = *from.type->field(i);
    if (field.json_name() == step.name) return ShapeOf(field);
    names.push_back(field.json_name());
  }
  return ShapeError(step,
                    absl::StrCat("there is no field ", step.name, DidYouMean(step.name, names)));
}

absl::StatusOr<Shape> ShapeAt(const JsonSteps& steps, Shape shape);

absl::StatusOr<Shape> StepShape(const Step& step, const Shape& from) {
  if (step.kind == Step::Kind::kField) return FieldShape(step, from);
  const bool all_of_object = step.kind == Step::Kind::kAll && !from.is_list;
  if (all_of_object && from.kind == Shape::Kind::kRoot) {
    return Shape{.kind = Shape::Kind::kMessage, .is_list = true, .type = from.type};
  }
  // Fields of several kinds: only the whole of each can be printed.
  if (all_of_object && from.kind != Shape::Kind::kLeaf) return Shape{};
  if (!from.is_list) return ShapeError(step, "this is not a list");
  Shape item = from;
  item.is_list = false;
  if (step.kind == Step::Kind::kFilter) RETURN_IF_ERROR(ShapeAt(step.filter.left, item).status());
  return item;
}

absl::StatusOr<Shape> ShapeAt(const JsonSteps& steps, Shape shape) {
  for (const Step& step : steps) {
    ASSIGN_OR_RETURN(shape, StepShape(step, shape));
  }
  return shape;
}

absl::Status CheckParts(const std::vector<Part>& parts, const Shape& shape) {
  for (const Part& part : parts) {
    for (const JsonSteps& path : part.paths) {
      ASSIGN_OR_RETURN(const Shape found, ShapeAt(path, shape));
      if (part.kind == Part::Kind::kRange) RETURN_IF_ERROR(CheckParts(part.inside, found));
    }
  }
  return absl::OkStatus();
}

// ---- What is there

using Values = std::vector<const Json*>;

Values ValuesAt(const JsonSteps& steps, const Json& from);

// Numbers past 2^53 are strings in our JSON; they compare as numbers with numbers.
bool Compare(const Json& left, const std::string& op, const Json& right) {
  const auto holds = [&op](const auto& a, const auto& b) {
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<") return a < b;
    if (op == "<=") return a <= b;
    return op == ">" ? a > b : a >= b;
  };
  if (left.is_number() && right.is_number()) {
    return holds(left.get<double>(), right.get<double>());
  }
  if (left.is_string() && right.is_number()) {
    char* end = nullptr;
    const auto& text = left.get_ref<const std::string&>();
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0') return holds(number, right.get<double>());
  }
  if (left.is_string() && right.is_string()) {
    return holds(left.get_ref<const std::string&>(), right.get_ref<const std::string&>());
  }
  if (left.is_boolean() && right.is_boolean()) return holds(left.get<bool>(), right.get<bool>());
  // Of different kinds: only different.
  return op == "!=";
}

bool Holds(const JsonFilter& filter, const Json& item) {
  const Values left = ValuesAt(filter.left, item);
  if (filter.op.empty()) return !left.empty();
  return std::any_of(left.begin(), left.end(), [&filter](const Json* value) {
    return Compare(*value, filter.op, filter.right);
  });
}

std::ptrdiff_t FromEnd(std::ptrdiff_t index, std::ptrdiff_t size) {
  return index < 0 ? index + size : index;
}

void AddStep(const Step& step, const Json& from, Values* found) {
  const auto size = static_cast<std::ptrdiff_t>(from.size());
  std::ptrdiff_t begin = 0;
  std::ptrdiff_t end = size;
  switch (step.kind) {
    case Step::Kind::kField: {
      const auto member = from.is_object() ? from.find(step.name) : from.end();
      if (member != from.end()) found->push_back(&*member);
      return;
    }
    case Step::Kind::kIndex:
      begin = FromEnd(*step.first, size);
      end = begin < 0 ? 0 : begin + 1;
      break;
    case Step::Kind::kSlice:
      begin = FromEnd(step.first.value_or(0), size);
      end = FromEnd(step.end.value_or(size), size);
      break;
    case Step::Kind::kAll:
    case Step::Kind::kFilter:
      break;
  }
  if (step.kind == Step::Kind::kAll && from.is_object()) {
    for (const auto& [key, value] : from.items()) found->push_back(&value);
    return;
  }
  if (!from.is_array()) return;
  for (auto i = std::max<std::ptrdiff_t>(begin, 0); i < std::min(end, size); ++i) {
    const Json& item = from[static_cast<std::size_t>(i)];
    if (step.kind != Step::Kind::kFilter || Holds(step.filter, item)) found->push_back(&item);
  }
}

Values ValuesAt(const JsonSteps& steps, const Json& from) {
  Values values = {&from};
  for (const Step& step : steps) {
    Values next;
    for (const Json* value : values) AddStep(step, *value, &next);
    values = std::move(next);
  }
  return values;
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void RenderParts(const std::vector<Part>& parts, const Json& from, std::string* out) {
  for (const Part& part : parts) {
    if (part.kind == Part::Kind::kText) out->append(part.text);
    const char* blank = "";
    for (const JsonSteps& path : part.paths) {
      for (const Json* value : ValuesAt(path, from)) {
        if (part.kind == Part::Kind::kRange) {
          RenderParts(part.inside, *value, out);
        } else {
          absl::StrAppend(out, blank, TextOf(*value));
          blank = " ";
        }
      }
    }
  }
}

}  // namespace

absl::StatusOr<JsonPath> JsonPath::Parse(const std::string& text) {
  ASSIGN_OR_RETURN(std::vector<Part> parts, ParseJsonPathParts(text));
  JsonPath path;
  path.parts_ = std::make_shared<const std::vector<Part>>(std::move(parts));
  return path;
}

absl::Status JsonPath::Check(const Descriptor& item, const std::string& list_key) const {
  return CheckParts(*parts_, {.kind = list_key.empty() ? Shape::Kind::kMessage : Shape::Kind::kRoot,
                              .type = &item,
                              .list_key = list_key});
}

std::string JsonPath::Render(const Json& root) const {
  std::string out;
  RenderParts(*parts_, root, &out);
  if (out.empty() || out.back() != '\n') out += '\n';
  return out;
}

}  // namespace fsdp
