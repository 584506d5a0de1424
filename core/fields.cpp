#include "core/fields.h"

#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/registry.h"
#include "core/settings.h"

namespace ringtape {

static std::string bound_text(double bound) {
  return std::abs(bound) < 1e15 && bound == std::floor(bound) ? std::to_string(int64_t(bound)) : shortest(bound);
}

template <class T>
static T parse_number(const FieldInfo& info, const std::string& text, const std::string& origin,
                      const std::string& unset) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const Bounds& r = info.range;
  const double x = double(value);
  const bool valid = error == std::errc{} && end == text.data() + text.size() && std::isfinite(x) &&
                     (r.above_low ? x > r.low : x >= r.low) && (r.below_high ? x < r.high : x <= r.high);
  if (valid) return value;
  std::string expected = std::is_integral_v<T> ? "a whole number" : "a number";
  if (std::isfinite(r.low)) expected += (r.above_low ? " above " : " of at least ") + bound_text(r.low);
  if (std::isfinite(r.high)) expected += (r.below_high ? " and below " : " and at most ") + bound_text(r.high);
  detail::fail<UsageError>(
      origin, ": expected ", expected, ", got '", text, "'",
      info.automatic && text == unset ? concat("; leave it out for the default: ", info.automatic) : "");
}

std::string field_text(const FieldRef& value) {
  return std::visit([](const auto* x) { return text(*x); }, value);
}

void set_field(const FieldRef& value, const FieldInfo& info, const std::string& text, const std::string& origin,
               const std::string& unset) {
  if (info.choices) check_known("value", text, info.choices(), origin + ": ");
  std::visit(
      [&](auto* x) {
        using T = std::remove_pointer_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::string>) {
          *x = text;
        } else if constexpr (std::is_same_v<T, bool>) {
          RT_CHECK_AS(UsageError, text == "true" || text == "false", origin, ": expected true or false, got '", text,
                      "'");
          *x = text == "true";
        } else {
          *x = parse_number<T>(info, text, origin, unset);
        }
      },
      value);
}

std::optional<FieldRef> find_field(Settings& settings, std::string_view name) {
  struct Find : Fields {
    explicit Find(std::string_view n) : name(n) {}
    void field(const char* field, FieldRef value, const FieldInfo&) override {
      if (name == field) found = value;
    }
    std::string_view name;
    std::optional<FieldRef> found;
  } find(name);
  settings.walk(find);
  return find.found;
}

}  // namespace ringtape
