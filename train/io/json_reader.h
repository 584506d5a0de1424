#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

// An object that is read back from a file, which may have been damaged or changed since it was written: nothing of it
// is believed. Its members are asked for by type and range. Throws FormatError, naming `where` and the member, for one
// that is absent or something else.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where);  // the object must outlive this

  bool has(const char* key) const { return object_.contains(key); }
  const Json& operator[](const char* key) const;
  JsonFields object(const char* key) const;
  // Low to high, of an integer.
  int64_t whole(const char* key, int64_t low = 0, int64_t high = std::numeric_limits<int64_t>::max()) const;
  // Each 0 to high.
  std::vector<int64_t> wholes(const char* key, int64_t high = std::numeric_limits<int64_t>::max()) const;
  uint64_t bits(const char* key) const;                                                   // any unsigned integer
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
