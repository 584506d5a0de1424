#include "train/io/json.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "core/check.h"
#include "train/io/json_events.h"

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
  detail::fail<FormatError>({"JSON: expected ", expected, ", got ", described()});
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

int64_t Json::integer() const {
  if (!is<int64_t>()) fail("a whole number");
  return std::get<int64_t>(value_);
}

uint64_t Json::unsigned_integer() const {
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

// Converts values to the library's type, and adds members without a look at those before: each look would cost as much
// as there are members.
struct JsonLibrary {
  static Json& append(Json& object, std::string key) {
    return std::get<Json::Members>(object.value_).emplace_back(std::move(key), Json()).second;
  }
  // Of members of one name the last value takes the first one's place.
  static void merge_repeated(Json& object) {
    auto& members = std::get<Json::Members>(object.value_);
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) -> const std::string& { return members[i].first; });
    std::vector<bool> repeated(members.size());
    for (size_t i = 1, first = 0; i < order.size(); ++i) {
      if (members[order[i]].first != members[order[first]].first) {
        first = i;
      } else {
        members[order[first]].second = std::move(members[order[i]].second);
        repeated[order[i]] = true;
      }
    }
    std::erase_if(members, [&, i = size_t{0}](const auto&) mutable { return bool(repeated[i++]); });
  }

  static Library to(const Json& value) {
    return std::visit([](const auto& x) { return to(x); }, value.value_);
  }
  static Library to(std::monostate) { return nullptr; }
  template <class T> static Library to(const T& scalar) { return scalar; }
  static Library to(const Json::List& parts) {
    Library out = Library::array();
    for (const Json& part : parts) out.push_back(to(part));
    return out;
  }
  static Library to(const Json::Members& members) {
    Library out = Library::object();
    auto& all = out.get_ref<Library::object_t&>();
    for (const auto& [key, value] : members) all.emplace_back(key, to(value));
    return out;
  }
};

std::string Json::text(int indent) const {
  return JsonLibrary::to(*this).dump(indent, ' ', false, Library::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << value.text(); }

namespace {

// JsonEvents as the library wants them.
struct JsonSax {
  JsonEvents& to;
  bool null() { return to.null(); }
  bool boolean(bool value) { return to.boolean(value); }
  bool number_integer(int64_t value) { return to.number_integer(value); }
  bool number_unsigned(uint64_t value) { return to.number_unsigned(value); }
  bool number_float(double value, const std::string& text) { return to.number_float(value, text); }
  bool string(std::string& value) { return to.string(value); }
  bool binary(Library::binary_t&) { return true; }  // in no text
  bool start_object(size_t) { return to.start_object(); }
  bool key(std::string& name) { return to.key(name); }
  bool end_object() { return to.end_object(); }
  bool start_array(size_t) { return to.start_list(); }
  bool end_array() { return to.end_list(); }
  bool parse_error(size_t, const std::string&, const Library::exception& e) {
    const char* reason = std::strstr(e.what(), "] ");
    return to.error(reason ? reason + 2 : e.what());
  }
};

class JsonTree : public JsonEvents {
 public:
  JsonTree(const std::string& where, int depth) : where_(where), depth_(size_t(depth)) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool start_object() override { return open(Json::object()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    JsonLibrary::merge_repeated(*open_.back());
    return close();
  }
  bool start_list() override { return open(Json::list()); }
  bool end_list() override { return close(); }
  bool error(const std::string&) override { detail::fail<FormatError>({where_, ": damaged: not JSON"}); }

 private:
  Json& next() {
    if (open_.empty()) return root_;
    RT_CHECK_AS(FormatError, ++values_ <= kMaxJsonValues, where_, ": more than ", kMaxJsonValues, " values");
    Json& parent = *open_.back();
    return parent.is_list() ? parent.push_back(nullptr) : JsonLibrary::append(parent, std::move(key_));
  }
  bool add(Json value) {
    next() = std::move(value);
    return true;
  }
  bool open(Json empty) {
    RT_CHECK_AS(FormatError, open_.size() < depth_, where_, ": nested too deep: more than ", depth_, " levels");
    Json& place = next();
    place = std::move(empty);
    open_.push_back(&place);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  size_t depth_;
  int64_t values_ = 0;  // in lists and objects so far
  Json root_;
  std::string key_;
  std::vector<Json*> open_;  // the lists and objects around the next value
};

}  // namespace

void read_json(std::string_view text, JsonEvents& events) {
  JsonSax sax{events};
  // The library takes it for the end.
  if (const size_t nul = text.find('\0'); nul != text.npos) events.error(concat("a byte 0 at byte ", nul));
  else Library::sax_parse(text, &sax);
}

Json parse_json(std::string_view text, const std::string& where, int depth) {
  JsonTree tree(where, depth);
  read_json(text, tree);
  return tree.take();
}

std::string json_library() {
  return concat(NLOHMANN_JSON_VERSION_MAJOR, '.', NLOHMANN_JSON_VERSION_MINOR, '.', NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace ringtape
