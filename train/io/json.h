#pragma once
#include <compare>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ringtape {

// A JSON value. A library reads and writes the text, in json.cpp and safetensors_header.cpp alone: its headers cost
// each file that includes them some seconds. A value is written as it looks: Json{{"loss", 0.5}, {"shape", {2, 3}}} is
// an object, since each part is a list of a text and a value; any other {...} is a list. Members keep their order, and
// two objects are equal where it is the same; numbers are equal by value.
class Json {
 public:
  using List = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  Json();  // null
  Json(std::nullptr_t) : Json() {}
  Json(std::same_as<bool> auto x) : Json() { value_ = x; }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T x) : Json() {
    if (std::in_range<int64_t>(x))
      value_ = int64_t(x);
    else
      value_ = uint64_t(x);
  }
  Json(double x);  // one that is not finite is written as null
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <class T>
  Json(const std::vector<T>& parts) : Json(list()) {
    for (const T& part : parts) push_back(part);
  }
  template <class T>
  Json(const std::map<std::string, T>& members) : Json(object()) {
    for (const auto& [key, value] : members) (*this)[key] = value;
  }
  Json(std::initializer_list<Json> parts);
  static Json list();    // without parts
  static Json object();  // without members
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  bool is_null() const { return is<std::monostate>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_int64() const { return is<int64_t>(); }
  bool is_uint64() const { return is<uint64_t>() || (is<int64_t>() && std::get<int64_t>(value_) >= 0); }
  bool is_number() const { return is<int64_t>() || is<uint64_t>() || is<double>(); }
  bool is_list() const { return is<List>(); }
  bool is_object() const { return is<Members>(); }

  // The value as a bool, a number, a std::string or a std::vector of those. Throws FormatError for one that is
  // something else, or a number that T cannot hold.
  template <class T>
  T get() const;

  // The parts of a list; null is an empty one. Throws FormatError for anything else, and for a part that is not there.
  const List& parts() const;
  List::const_iterator begin() const { return parts().begin(); }
  List::const_iterator end() const { return parts().end(); }
  List::iterator begin() { return own_parts().begin(); }
  List::iterator end() { return own_parts().end(); }
  const Json& operator[](std::integral auto i) const { return part(size_t(i)); }
  Json& operator[](std::integral auto i) { return const_cast<Json&>(part(size_t(i))); }
  Json& push_back(Json part);

  // The members of an object; null is an empty one. Throws FormatError for anything else, and for a member that a
  // constant object does not have; any other gets it.
  const Members& items() const;
  const Json* find(std::string_view key) const;  // null without it, and for what is no object
  bool contains(std::string_view key) const { return find(key); }
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);
  void update(const Json& object);  // each of its members is set here
  void erase(std::string_view key);

  size_t size() const;  // of a list or an object; 0 of null, 1 of anything else
  bool empty() const { return size() == 0; }
  bool operator==(const Json& other) const;
  std::partial_ordering operator<=>(const Json& other) const;  // of numbers; throws FormatError for anything else

  std::string described() const;  // what a message says of it: itself where it is short
  // As files have it, on one line or indented. Strings may hold anything, as paths do:
  // bytes that are not UTF-8 become U+FFFD.
  std::string text(int indent = -1) const;
  friend std::ostream& operator<<(std::ostream& out, const Json& value);

 private:
  friend struct JsonLibrary;
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  [[noreturn]] void fail(const char* expected) const;
  bool truth() const;
  double number() const;
  int64_t whole() const;
  uint64_t unsigned_whole() const;
  const std::string& string() const;
  List& own_parts();
  const Json& part(size_t i) const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, List, Members> value_;
};

template <class T>
T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return truth();
  } else if constexpr (std::floating_point<T>) {
    return T(number());
  } else if constexpr (std::same_as<T, uint64_t>) {
    return unsigned_whole();
  } else if constexpr (std::integral<T>) {
    const int64_t x = whole();
    if (!std::in_range<T>(x)) fail("a smaller number");
    return T(x);
  } else if constexpr (std::same_as<T, std::string>) {
    return string();
  } else {
    T out;
    for (const Json& part : parts()) out.push_back(part.get<typename T::value_type>());
    return out;
  }
}

// Throws FormatError, beginning with `where`, for text that is not JSON or is nested deeper than `depth`; that costs no
// more than reading it so far.
Json parse_json(std::string_view text, const std::string& where = "JSON", int depth = 16);

std::string json_library();  // its version

}  // namespace ringtape
