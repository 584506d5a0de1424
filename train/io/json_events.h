#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ringtape {

// The values of a JSON text in their order, for whoever needs no tree of them. Texts may be moved from. Each function
// returns true, or throws.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool number_integer(int64_t value) = 0;  // below 0, or "-0"
  virtual bool number_unsigned(uint64_t value) = 0;
  virtual bool number_float(double value, const std::string& text) = 0;
  virtual bool string(std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool key(std::string& name) = 0;
  virtual bool end_object() = 0;
  virtual bool start_list() = 0;
  virtual bool end_list() = 0;
  virtual bool error(const std::string& reason) = 0;  // the text is not JSON
};

void read_json(std::string_view text, JsonEvents& events);

}  // namespace ringtape
