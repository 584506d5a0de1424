// The list of all options; reading and setting an option by its name.
#include <algorithm>
#include <utility>

#include "train/settings/option_walk.h"

namespace ringtape {
namespace {

class List : public OptionWalk {
 public:
  void group(const OptionGroup& group) override { group_ = group; }
  void field(const char* name, FieldRef value, const FieldInfo& info) override {
    options.push_back({group_, name, info, field_text(value), std::holds_alternative<bool*>(value),
                       std::holds_alternative<std::string*>(value)});
  }
  std::vector<Option> options;

 private:
  OptionGroup group_{.title = ""};
};

// A pointer to a field of the options, of any type.
struct Place {
  OptionGroup group;
  FieldRef value;
  FieldInfo info;
};

// Collects the options of one name; empty: all.
class Places : public OptionWalk {
 public:
  explicit Places(TrainOptions& options, std::string_view name = "") : name_(name) { visit(*this, options); }
  void group(const OptionGroup& group) override { group_ = group; }
  void field(const char* name, FieldRef value, const FieldInfo& info) override {
    if (name_.empty() || name_ == name) all.push_back({group_, value, info});
  }
  std::vector<Place> all;

 private:
  const std::string_view name_;
  OptionGroup group_{.title = ""};
};

const Place* chosen_of(const std::vector<Place>& places) {
  const auto found = std::ranges::find_if(places, [](const Place& p) { return p.group.is_chosen; });
  return found == places.end() ? nullptr : &*found;
}

std::string default_of(std::string_view name, const Place& place) {
  for (const Option& option : train_options())
    if (option.name == name && option.group.name == place.group.name) return option.initial;
  return "";
}

// "moco and swav have it"
std::string owners_text(const std::vector<Place>& places) {
  std::string out = places[0].group.name;
  for (size_t i = 1; i < places.size(); ++i) out += (i + 1 < places.size() ? ", " : " and ") + places[i].group.name;
  return out + (places.size() > 1 ? " have it" : " has it");
}

// No model given: the data set's default.
std::string chosen_of_kind(const TrainOptions& options, const std::string& kind) {
  const std::string named = option_text(options, kind).value_or("");
  if (!named.empty()) return named;
  for (const OptionValue& value : values_of(options))
    if (value.option->group.kind == kind) return value.option->group.name;
  return "";
}

[[noreturn]] void refuse(const TrainOptions& options, const std::vector<Place>& places, const std::string& origin) {
  const std::string kind = places[0].group.kind, chosen = chosen_of_kind(options, kind);
  detail::fail<UsageError>(origin, ": ",
                           chosen.empty() ? concat("no ", kind, " is chosen") : concat("not a setting of ", chosen),
                           "; ", owners_text(places), " (--", kind, ")");
}

// Sets the value in the other components of the kind, too; a component that does not accept it keeps its own.
void carry_over(const std::vector<Place>& places, const Place* chosen, std::string_view name, const std::string& text) {
  if (chosen && text == default_of(name, *chosen)) return;
  for (const Place& place : places) {
    if (&place == chosen) continue;
    try {
      set_field(place.value, place.info, text, "");
    } catch (const UsageError&) {
    }
  }
}

}  // namespace

std::span<const Option> train_options() {
  static const std::vector<Option> all = [] {
    List list;
    TrainOptions defaults;
    visit(list, defaults);
    return std::move(list.options);
  }();
  return all;
}

const Option* find_option(std::string_view name) {
  const auto found = std::ranges::find_if(train_options(), [&](const Option& option) { return option.name == name; });
  return found == train_options().end() ? nullptr : &*found;
}

std::vector<OptionValue> values_of(const TrainOptions& options) {
  const Places places(const_cast<TrainOptions&>(options));  // the walk only reads
  const bool self_supervised = options.self_supervised();
  std::vector<OptionValue> out;
  for (size_t i = 0; i < places.all.size(); ++i)
    if (const Option& option = train_options()[i]; places.all[i].group.is_chosen && option.concerns(self_supervised))
      out.push_back({&option, field_text(places.all[i].value)});
  return out;
}

std::optional<std::string> option_text(const TrainOptions& options, std::string_view name) {
  const Places places(const_cast<TrainOptions&>(options), name);
  const Place* const place = chosen_of(places.all);
  return place ? std::optional(field_text(place->value)) : std::nullopt;
}

void set_option(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin) {
  const Places places(options, name);
  const Place* const chosen = chosen_of(places.all);
  if (!chosen) refuse(options, places.all, origin);
  set_field(chosen->value, chosen->info, text, origin, default_of(name, *chosen));
  carry_over(places.all, chosen, name, text);
}

void set_recorded(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin,
                  bool kind_is_named) {
  const Places places(options, name);
  const Place* const chosen = chosen_of(places.all);
  const Place& place = chosen ? *chosen : places.all.at(0);
  const auto means_nothing = [&](const Place& p) { return p.info.unset && text == p.info.unset; };
  const auto set = [&](const Place& p) {
    FieldInfo info = p.info;
    if (info.automatic && text == default_of(name, p)) info.range = {}, info.choices = nullptr;
    set_field(p.value, info, text, origin);
  };
  if (kind_is_named || place.group.name.empty()) {
    if (means_nothing(place)) return;
    set(place);
    return carry_over(places.all, &place, name, text);
  }
  std::optional<UsageError> refusal;
  bool is_taken = false;
  for (const Place& p : places.all) try {
      if (!means_nothing(p)) set(p);
      is_taken = true;
    } catch (const UsageError& e) {
      if (!refusal) refusal = e;
    }
  if (!is_taken) throw *refusal;
}

}  // namespace ringtape
