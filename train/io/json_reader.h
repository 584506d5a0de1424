#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// Reads an object from a file that may have been damaged or changed, so nothing in it is trusted. Members are requested
// by type and range. Throws FormatError, naming `where` and the member, if one is missing or invalid.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where);  // the object must outlive this

  bool has(const char* key) const { return object_.contains(key); }
  const Json& operator[](const char* key) const;
  JsonFields object(const char* key) const;
  // An integer in [low, high].
  int64_t integer(const char* key, int64_t low = 0, int64_t high = std::numeric_limits<int64_t>::max()) const;
  // A list of integers in [0, high].
  std::vector<int64_t> integers(const char* key, int64_t high = std::numeric_limits<int64_t>::max()) const;
  uint64_t bits(const char* key) const;  // any unsigned integer
  double real(const char* key, double low, double high = std::numeric_limits<double>::max()) const;  // finite
  std::string text(const char* key) const;
  std::vector<std::string> keys() const;
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void fail(const char* key, const std::string& expected, const Json& got) const;
  int64_t integer_of(const char* key, const Json& value, int64_t low, int64_t high) const;
  const Json& object_;
  std::string where_;
};

}  // namespace ringtape
