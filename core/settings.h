#pragma once
#include <any>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "core/registry.h"

namespace ringtape {

// The settings of one component: a struct O, known only to the component, with a function visit(Fields&, O&).
class Settings {
 public:
  Settings() = default;  // the defaults of any component
  template <class O>
  requires(!std::same_as<O, Settings>) Settings(O options) : value_(std::move(options)), walk_(walk_as<O>) {}

  void walk(Fields& f) {
    if (walk_) walk_(f, value_);
  }
  template <class O> const O& as() const {
    static const O defaults{};
    return value_.has_value() ? std::any_cast<const O&>(value_) : defaults;
  }
  template <class O> O& as() {
    if (!value_.has_value()) *this = O{};
    return std::any_cast<O&>(value_);
  }

 private:
  template <class O> static void walk_as(Fields& f, std::any& value) { visit(f, std::any_cast<O&>(value)); }

  std::any value_;
  void (*walk_)(Fields& f, std::any& value) = nullptr;
};

// The field of that name, if these settings have one; it points into them.
std::optional<FieldRef> find_field(Settings& settings, std::string_view name);

// The name of one of several components, and the settings of all: they are kept if another one is chosen.
class Selection {
 public:
  // `registry`: entries with a `name` and `settings`.
  template <class Registry>
  explicit Selection(const Registry& registry, std::string chosen = "") : name(std::move(chosen)) {
    for (const auto& item : registry) add(detail::entry(item).name, detail::entry(item).settings);
  }

  struct Part {
    std::string name;
    Settings settings;
  };
  Settings& of(std::string_view part) { return find_entry(parts, part, "name").settings; }
  const Settings& of(std::string_view part) const { return find_entry(parts, part, "name").settings; }
  const Settings& chosen() const { return of(name); }

  std::string name;
  std::vector<Part> parts;

 private:
  void add(std::string_view part, const Settings& settings);
};

// Selections of some components, in the order of their use, and the settings of all.
struct Selections {
  template <class Registry> explicit Selections(const Registry& registry) : settings(registry) {}

  std::string names;  // separated by commas; empty: none
  Selection settings;

  std::vector<std::string> chosen() const;
  // Throws UsageError for unknown names and repeated ones: "--callback: unknown callback 'wach'; ...".
  void check(const std::string& kind) const;
};

}  // namespace ringtape
