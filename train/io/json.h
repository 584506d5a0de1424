#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
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

// A JSON value. The library that reads and writes the text is included only in json.cpp: its headers cost some seconds.
// Json{{"loss", 0.5}, {"shape", {2, 3}}} is an object, since each part is a list of a text and a value; any other {...}
// is a list. Members keep their order, and objects are equal only if it is the same; numbers are equal by value.
class Json {
 public:
  using List = std::vector<Json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  Json();  // null
  Json(std::nullptr_t) : Json() {}
  Json(std::same_as<bool> auto x) : Json() { value_ = x; }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T x) : Json() {
    if (std::in_range<int64_t>(x)) value_ = int64_t(x);
    else value_ = uint64_t(x);
  }
  Json(double x);  // written as null if it is not finite
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <class T> Json(const std::vector<T>& parts) : Json(list()) {
    for (const T& part : parts) push_back(part);
  }
  Json(Members members) : Json() { value_ = std::move(members); }  // their names must differ
  template <class T> Json(const std::map<std::string, T>& members) : Json(Members(members.begin(), members.end())) {}
  Json(std::initializer_list<Json> parts);
  static Json list();    // empty list
  static Json object();  // empty object
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  bool is_null() const { return is<std::monostate>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_int64() const { return is<int64_t>(); }
  bool is_uint64() const { return is<uint64_t>() || (is<int64_t>() && std::get<int64_t>(value_) >= 0); }
  bool is_number() const { return is<int64_t>() || is<uint64_t>() || is<double>(); }
  bool is_list() const { return is<List>(); }
  bool is_object() const { return is<Members>(); }

  // The value as a bool, a number, a std::string or a std::vector of those. Throws FormatError for a value of another
  // type, or a number that T cannot hold.
  template <class T> T get() const;

  // The parts of a list; null counts as an empty list. Throws FormatError for any other type and for an index out of
  // range.
  const List& parts() const;
  List::const_iterator begin() const { return parts().begin(); }
  List::const_iterator end() const { return parts().end(); }
  List::iterator begin() { return own_parts().begin(); }
  List::iterator end() { return own_parts().end(); }
  const Json& operator[](std::integral auto i) const { return part(size_t(i)); }
  Json& operator[](std::integral auto i) { return const_cast<Json&>(part(size_t(i))); }
  Json& push_back(Json part);

  // The members of an object; null counts as an empty object. Throws FormatError for any other type. A missing member
  // is an error in a const object; otherwise [] adds it.
  const Members& items() const;
  const Json* find(std::string_view key) const;  // null if there is no such member, or no object
  bool contains(std::string_view key) const { return find(key); }
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);
  void update(const Json& object);  // sets each of its members here
  void erase(std::string_view key);

  size_t size() const;  // of a list or an object; 0 for null, 1 for anything else
  bool empty() const { return size() == 0; }
  bool operator==(const Json& other) const;
  std::partial_ordering operator<=>(const Json& other) const;  // numbers only; throws FormatError for anything else

  std::string described() const;  // for messages: the value itself if it is short
  // The JSON text, on one line or indented. Strings may hold any bytes, as paths do: bytes that are not UTF-8 become
  // U+FFFD.
  std::string text(int indent = -1) const;
  friend std::ostream& operator<<(std::ostream& out, const Json& value);

 private:
  friend struct JsonLibrary;
  template <class T> bool is() const { return std::holds_alternative<T>(value_); }
  [[noreturn]] void fail(const char* expected) const;
  bool truth() const;
  double number() const;
  int64_t integer() const;
  uint64_t unsigned_integer() const;
  const std::string& string() const;
  List& own_parts();
  const Json& part(size_t i) const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, List, Members> value_;
};

template <class T> T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return truth();
  } else if constexpr (std::floating_point<T>) {
    return T(number());
  } else if constexpr (std::same_as<T, uint64_t>) {
    return unsigned_integer();
  } else if constexpr (std::integral<T>) {
    const int64_t x = integer();
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

// Throws FormatError, beginning with `where`, for text that is not JSON, is nested deeper than `depth` or has more than
// kMaxJsonValues values in all its objects and lists together. Parsing stops there, so a hostile text costs no more
// than reading it up to that point: time in proportion to its length, and at most some hundred MB of memory. Of members
// of one name the last value counts.
inline constexpr int64_t kMaxJsonValues = 1 << 21;
Json parse_json(std::string_view text, const std::string& where = "JSON", int depth = 16);

std::string json_library();  // its version

}  // namespace ringtape
