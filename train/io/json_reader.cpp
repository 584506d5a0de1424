#include "train/io/json_reader.h"

#include "core/check.h"
#include "train/io/json.h"

namespace ringtape {

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  RT_CHECK_AS(FormatError, object.is_object(), where_, ": expected an object, got ", object.described());
}

void JsonFields::fail(const char* key, const std::string& expected, const Json& got) const {
  detail::fail<FormatError>({where_, ": ", key, ": expected ", expected, ", got ", got.described()});
}

const Json& JsonFields::operator[](const char* key) const {
  const Json* found = object_.find(key);
  RT_CHECK_AS(FormatError, found, where_, ": has no ", key);
  return *found;
}

JsonFields JsonFields::object(const char* key) const { return JsonFields((*this)[key], concat(where_, ": ", key)); }

int64_t JsonFields::integer_of(const char* key, const Json& value, int64_t low, int64_t high) const {
  const bool fits = value.is_int64();
  const int64_t x = fits ? value.get<int64_t>() : 0;
  if (fits && x >= low && x <= high) return x;
  const std::string most = high == INT64_MAX ? "" : concat(" and at most ", high);
  fail(key, concat("a whole number of at least ", low, most), value);
}

int64_t JsonFields::integer(const char* key, int64_t low, int64_t high) const {
  return integer_of(key, (*this)[key], low, high);
}

std::vector<int64_t> JsonFields::integers(const char* key, int64_t high) const {
  const Json& list = (*this)[key];
  if (!list.is_list()) fail(key, "a list of whole numbers", list);
  std::vector<int64_t> out;
  for (const Json& value : list) out.push_back(integer_of(key, value, 0, high));
  return out;
}

uint64_t JsonFields::bits(const char* key) const {
  const Json& value = (*this)[key];
  if (!value.is_uint64()) fail(key, "a whole number of at least 0", value);
  return value.get<uint64_t>();
}

double JsonFields::real(const char* key, double low, double high) const {
  const Json& value = (*this)[key];
  if (value.is_number())
    if (const double x = value.get<double>(); x >= low && x <= high) return x;
  fail(key,
       concat("a number of at least ", low,
              high < std::numeric_limits<double>::max() ? concat(" and at most ", high) : ""),
       value);
}

std::string JsonFields::text(const char* key) const {
  const Json& value = (*this)[key];
  if (!value.is_string()) fail(key, "a string", value);
  return value.get<std::string>();
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : object_.items()) out.push_back(key);
  return out;
}

}  // namespace ringtape
