#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

// JSON that is read back from a file, which may have been damaged or changed since it was written: nothing of it is believed, and
// no exception of the JSON library leaves this.
namespace ringtape {

// Throws FormatError, beginning with `where`, for text that is not JSON or is nested deeper than `depth`; that costs no more than
// reading it so far.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where, int depth = 16);

// An object, whose members are asked for by type and range. Throws FormatError, naming `where` and the member, for one that is
// absent or something else.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;
  JsonFields(const Json& object, std::string where);  // the object must outlive this

  bool has(const char* key) const { return object_.contains(key); }
  const Json& operator[](const char* key) const;
  JsonFields object(const char* key) const;
  int64_t whole(const char* key, int64_t low = 0, int64_t high = std::numeric_limits<int64_t>::max()) const;  // low to high, of an integer
  std::vector<int64_t> wholes(const char* key, int64_t high = std::numeric_limits<int64_t>::max()) const;     // each 0 to high
  uint64_t bits(const char* key) const;                                                                       // any unsigned integer
  double real(const char* key, double low, double high = std::numeric_limits<double>::max()) const;           // finite
  std::string text(const char* key) const;
  std::vector<std::string> keys() const;
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void fail(const char* key, const std::string& expected, const Json& got) const;
  int64_t whole_of(const char* key, const Json& value, int64_t low, int64_t high) const;
  const Json& object_;
  std::string where_;
};

}  // namespace ringtape
