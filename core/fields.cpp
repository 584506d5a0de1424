#include "core/fields.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/parse.h"
#include "core/registry.h"
#include "core/settings.h"

namespace ringtape {

static std::string bound_text(double bound) {
  return std::abs(bound) < 1e15 && bound == std::floor(bound) ? std::to_string(int64_t(bound)) : shortest(bound);
}

// Each sets the value, or returns what was expected.
static std::string parse(std::string& value, const FieldInfo& info, const std::string& text) {
  const std::vector<std::string> known = info.choices ? info.choices() : std::vector<std::string>();
  if (info.choices && std::ranges::find(known, text) == known.end()) return unknown("value", text, known);
  value = text;
  return "";
}

static std::string parse(bool& value, const FieldInfo&, const std::string& text) {
  if (text != "true" && text != "false") return concat("expected true or false, got '", text, "'");
  value = text == "true";
  return "";
}

template <class T> static std::string parse(T& value, const FieldInfo& info, const std::string& text) {
  const std::optional<T> parsed = parse_number<T>(text);
  const FieldRange& r = info.range;
  const double x = double(parsed.value_or(0));
  const bool within = (r.above_low ? x > r.low : x >= r.low) && (r.below_high ? x < r.high : x <= r.high);
  if (parsed && std::isfinite(x) && within) {
    value = *parsed;
    return "";
  }
  std::string expected = std::is_integral_v<T> ? "a whole number" : "a number";
  if (std::isfinite(r.low)) expected += (r.above_low ? " above " : " of at least ") + bound_text(r.low);
  if (std::isfinite(r.high)) expected += (r.below_high ? " and below " : " and at most ") + bound_text(r.high);
  return concat("expected ", expected, ", got '", text, "'");
}

std::string field_text(const FieldRef& value) {
  return std::visit([](const auto* x) { return text(*x); }, value);
}

std::string refusal_of(const FieldRef& value, const FieldInfo& info, const std::string& text) {
  return std::visit(
      [&](const auto* x) {
        auto copy = *x;
        return parse(copy, info, text);
      },
      value);
}

std::string set_field(const FieldRef& value, const FieldInfo& info, const std::string& text) {
  return std::visit([&](auto* x) { return parse(*x, info, text); }, value);
}

void Selection::add(std::string_view part, const Settings& settings) { parts.push_back({std::string(part), settings}); }

std::vector<std::string> Selections::chosen() const {
  return names.empty() ? std::vector<std::string>() : split_text(names);
}

void Selections::check(const std::string& kind) const {
  const std::vector<std::string> words = chosen();
  for (const std::string& name : words) {
    find_entry(settings.parts, name, kind, "--" + kind + ": ");
    RT_CHECK_AS(UsageError, std::ranges::count(words, name) == 1, "--", kind, ": ", name, " is given twice");
  }
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
