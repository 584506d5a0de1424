#include "train/io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/check.h"

namespace ringtape {

using Library = nlohmann::ordered_json;

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
bool Json::operator==(const Json& other) const {
  const bool mixed = is_number() && other.is_number() && value_.index() != other.value_.index();
  return mixed ? number() == other.number() : value_ == other.value_;
}
std::partial_ordering Json::operator<=>(const Json& other) const { return number() <=> other.number(); }

Json::Json(double x) : value_(x) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}

Json::Json(std::initializer_list<Json> parts) {
  const auto is_member = [](const Json& part) { return part.is_list() && part.size() == 2 && part[0].is_string(); };
  if (!std::ranges::all_of(parts, is_member)) {
    value_ = List(parts);
    return;
  }
  value_ = Members();
  for (const Json& part : parts) (*this)[part[0].string()] = part[1];
}

Json Json::list() {
  Json out;
  out.value_ = List();
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Members();
  return out;
}

void Json::fail(const char* expected) const {
  detail::fail<FormatError>("JSON: expected ", expected, ", got ", described());
}

std::string Json::described() const {
  constexpr size_t kShort = 40;
  if (is_object() || is_list()) return is_object() ? "an object" : "a list";
  const std::string whole = text();
  return whole.size() <= kShort ? whole : whole.substr(0, kShort) + "...";
}

bool Json::truth() const {
  if (!is<bool>()) fail("true or false");
  return std::get<bool>(value_);
}

double Json::number() const {
  if (is<int64_t>()) return double(std::get<int64_t>(value_));
  if (is<uint64_t>()) return double(std::get<uint64_t>(value_));
  if (!is<double>()) fail("a number");
  return std::get<double>(value_);
}

int64_t Json::whole() const {
  if (!is<int64_t>()) fail("a whole number");
  return std::get<int64_t>(value_);
}

uint64_t Json::unsigned_whole() const {
  if (!is_uint64()) fail("a whole number of at least 0");
  return is<uint64_t>() ? std::get<uint64_t>(value_) : uint64_t(std::get<int64_t>(value_));
}

const std::string& Json::string() const {
  if (!is_string()) fail("a string");
  return std::get<std::string>(value_);
}

const Json::List& Json::parts() const {
  static const List none;
  if (is_null()) return none;
  if (!is_list()) fail("a list");
  return std::get<List>(value_);
}

Json::List& Json::own_parts() {
  if (is_null()) value_ = List();
  return const_cast<List&>(parts());
}

const Json& Json::part(size_t i) const {
  const List& all = parts();
  RT_CHECK_AS(FormatError, i < all.size(), "JSON: a list of ", all.size(), " has no part ", i);
  return all[i];
}

Json& Json::push_back(Json part) { return own_parts().emplace_back(std::move(part)); }

const Json::Members& Json::items() const {
  static const Members none;
  if (is_null()) return none;
  if (!is_object()) fail("an object");
  return std::get<Members>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : items())
    if (name == key) return &value;
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = items().empty() ? nullptr : find(key);
  RT_CHECK_AS(FormatError, found, "JSON: an object has no ", key);
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Members();
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  if (!is_object()) fail("an object");
  return std::get<Members>(value_).emplace_back(key, Json()).second;
}

void Json::update(const Json& object) {
  for (const auto& [key, value] : object.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  if (is_object()) std::erase_if(std::get<Members>(value_), [&](const auto& member) { return member.first == key; });
}

size_t Json::size() const {
  if (is_null()) return 0;
  return is_list() ? parts().size() : is_object() ? items().size() : 1;
}

// Converts values to the library's type and back.
struct JsonLibrary {
  static Library to(const Json& value) {
    return std::visit([](const auto& x) { return to(x); }, value.value_);
  }
  static Library to(std::monostate) { return nullptr; }
  template <class T>
  static Library to(const T& scalar) {
    return scalar;
  }
  static Library to(const Json::List& parts) {
    Library out = Library::array();
    for (const Json& part : parts) out.push_back(to(part));
    return out;
  }
  static Library to(const Json::Members& members) {
    Library out = Library::object();
    for (const auto& [key, value] : members) out[key] = to(value);
    return out;
  }

  static Json from(const Library& value) {
    if (value.is_null()) return nullptr;
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    if (value.is_number_integer()) return value.get<int64_t>();
    if (value.is_number()) return value.get<double>();
    if (value.is_string()) return value.get<std::string>();
    Json out = value.is_array() ? Json::list() : Json::object();
    if (value.is_array())
      for (const Library& part : value) out.push_back(from(part));
    else
      for (const auto& [key, member] : value.items()) out[key] = from(member);
    return out;
  }
};

std::string Json::text(int indent) const {
  return JsonLibrary::to(*this).dump(indent, ' ', false, Library::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << value.text(); }

Json parse_json(std::string_view text, const std::string& where, int depth) {
  const auto check = [&](int outside, Library::parse_event_t event, Library&) {
    const bool begins = event == Library::parse_event_t::array_start || event == Library::parse_event_t::object_start;
    RT_CHECK_AS(FormatError, !begins || outside < depth, where, ": nested too deep: more than ", depth, " levels");
    return true;
  };
  const Library out = Library::parse(text, check, false);
  RT_CHECK_AS(FormatError, !out.is_discarded(), where, ": damaged: not JSON");
  return JsonLibrary::from(out);
}

std::string json_library() {
  return concat(NLOHMANN_JSON_VERSION_MAJOR, '.', NLOHMANN_JSON_VERSION_MINOR, '.', NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace ringtape
