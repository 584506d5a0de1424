// The list of all options; reading and setting options by their names.
#include <algorithm>
#include <utility>

#include "train/settings/given.h"
#include "train/settings/option_walk.h"

namespace ringtape {
namespace {

// A field of the options, of any type.
struct Place {
  const Option* option;
  FieldRef value;
  bool is_chosen;  // the component is
};

// Collects the options of one name; empty: all, in the order of train_options().
class Places : public OptionWalk {
 public:
  explicit Places(TrainOptions& options, std::string_view name = "") : name_(name) {
    visit(*this, options);
    self_supervised_ = options.self_supervised();
  }
  void field(const char* name, FieldRef value, const FieldInfo&) override {
    if (name_.empty() || name_ == name) all.push_back({&train_options()[next_], value, group.is_chosen});
    ++next_;
  }
  template <class Condition> const Place* first(Condition is) const {
    const auto found = std::ranges::find_if(all, is);
    return found == all.end() ? nullptr : &*found;
  }
  // Of several, the one for this kind of training.
  const Place* chosen() const {
    const Place* const own =
        first([this](const Place& p) { return p.is_chosen && p.option->concerns(self_supervised_); });
    return own ? own : first(&Place::is_chosen);
  }
  std::vector<Place> all;

 private:
  const std::string_view name_;
  size_t next_ = 0;
  bool self_supervised_ = false;
};

// "moco and swav have it"
std::string owners_text(const std::vector<Place>& places) {
  std::string out = places[0].option->group.name;
  for (size_t i = 1; i < places.size(); ++i)
    out += (i + 1 < places.size() ? ", " : " and ") + places[i].option->group.name;
  return out + (places.size() > 1 ? " have it" : " has it");
}

[[noreturn]] void refuse(TrainOptions options, const std::vector<Place>& places, const std::string& origin) {
  settle_model(options);
  const std::string kind = places[0].option->group.kind, chosen = option_text(options, kind).value_or("");
  detail::fail<UsageError>({origin, ": ",
                            chosen.empty() ? concat("no ", kind, " is chosen") : concat("not a setting of ", chosen),
                            "; ", owners_text(places), " (--", kind, ")"});
}

std::string owner_of(const OptionGroup& group) {
  return *group.kind ? concat(group.kind, " ", group.name) : std::string("every run");
}

// Components of which a run has one; or one of them is for learning with labels, the other one without.
bool may_share_names(const OptionGroup& a, const OptionGroup& b) {
  if (a.learning != b.learning && a.learning != Learning::any && b.learning != Learning::any) return true;
  const std::string_view kind = a.kind;
  return kind == b.kind && !kind.empty() && kind != "callback" && kind != "transform";
}

// Sets what a file gives, if the chosen component has such a setting and accepts the value.
void set_from_file(TrainOptions& options, const Given& file, const Given::Setting& given) {
  const std::string& text = given.text;
  const Places places(options, given.option->name);
  const auto means_none = [&](const Place& p) { return p.option->info.unset && text == p.option->info.unset; };
  const auto is_default = [&](const Place& p) { return text == p.option->initial || means_none(p); };
  const auto refusal = [&](const Place& p) { return is_default(p) ? "" : refusal_of(p.value, p.option->info, text); };
  const auto accepts = [&](const Place& p) { return refusal(p).empty(); };
  const Place* const selected = places.first([&](const Place& p) {  // by this file
    const Given::Setting* const component = file.find(p.option->group.kind);
    return component && component->text == p.option->group.name;
  });
  // A component of which it gives the kind, but none with such a setting: that is then the first one's.
  const bool names_kind = file.find(places.all.at(0).option->group.kind);
  const Place* const meant = selected ? selected : names_kind ? &places.all[0] : places.first(accepts);
  const std::string why = refusal(meant ? *meant : places.all.at(0));
  RT_CHECK_AS(UsageError, why.empty(), given.origin, ": ", why);
  const Place* const chosen = places.chosen();
  const bool is_for_another = names_kind && meant != chosen && is_default(*meant);
  if (chosen && !is_for_another && !means_none(*chosen) && accepts(*chosen)) (void)set_field(chosen->value, {}, text);
}

// Computes --lr from --base-lr. A source that gives --lr drops an earlier --base-lr.
void settle_lr(TrainOptions& options, const Given& source) {
  const bool gives_lr = source.find("lr");
  RT_CHECK_AS(UsageError, !gives_lr || !source.find("base-lr"), source.file, source.file.empty() ? "" : ": ",
              "--lr and --base-lr: --lr is computed from --base-lr; give only one of them");
  if (gives_lr) options.schedule.base_lr = 0;
  settle_lr(options.schedule, options.trainer.batch_size);
}

}  // namespace

std::span<const Option> train_options() {
  struct List : OptionWalk {
    List() {
      TrainOptions defaults;
      visit(*this, defaults);
    }
    void field(const char* name, FieldRef value, const FieldInfo& info) override {
      for (const Option& known : options)
        RT_CHECK_AS(UsageError, known.name != std::string_view(name) || may_share_names(known.group, group),
                    owner_of(known.group), " and ", owner_of(group), " both have a setting '", name,
                    "'; rename a component's");
      options.push_back({group, name, info, field_text(value), std::holds_alternative<bool*>(value),
                         std::holds_alternative<std::string*>(value)});
    }
    std::vector<Option> options;
  };
  static const List list;
  return list.options;
}

const Option* find_option(std::string_view name) {
  const auto found = std::ranges::find_if(train_options(), [&](const Option& option) { return option.name == name; });
  return found == train_options().end() ? nullptr : &*found;
}

bool concerns(std::string_view name, bool self_supervised) {
  return std::ranges::any_of(
      train_options(), [&](const Option& option) { return option.name == name && option.concerns(self_supervised); });
}

std::vector<OptionValue> values_of(TrainOptions options) {
  std::vector<OptionValue> out;
  const Places places(options);
  for (const Place& place : places.all)
    if (place.is_chosen && place.option->concerns(options.self_supervised()))
      out.push_back({place.option, field_text(place.value)});
  return out;
}

std::optional<std::string> option_text(TrainOptions options, std::string_view name) {
  const Places places(options, name);
  const Place* const place = places.chosen();
  return place ? std::optional(field_text(place->value)) : std::nullopt;
}

void set_option(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin) {
  const Places places(options, name);
  const Place* const place = places.chosen();
  RT_CHECK_AS(UsageError, !places.all.empty(), origin, ": unknown setting '", name, "'");
  if (!place) refuse(options, places.all, origin);
  const FieldInfo& info = place->option->info;
  const std::string refusal = set_field(place->value, info, text);
  if (!refusal.empty() && place->option->is_recorded() && text.find(',') != std::string::npos)
    detail::fail<UsageError>({origin, ": ", refusal, "; for several values: ringtape compare ",
                              name == "seed"       ? "--seeds "
                              : name == "strategy" ? "--strategies "
                                                   : concat("--vary ", name, "="),
                              text});
  const bool is_automatic = info.automatic && !place->option->is_text && text == place->option->initial;
  RT_CHECK_AS(UsageError, refusal.empty(), origin, ": ", refusal,
              is_automatic ? concat("; leave it out for the default: ", info.automatic) : "");
}

const Given::Setting* Given::find(std::string_view name) const {
  const auto found = std::ranges::find_if(settings, [&](const Setting& s) { return s.option->name == name; });
  return found == settings.end() ? nullptr : &*found;
}

void Given::leave_out(std::initializer_list<std::string_view> names) {
  std::erase_if(settings, [&](const Setting& s) { return std::ranges::count(names, s.option->name) > 0; });
}

void apply_settings(TrainOptions& options, const std::vector<Given>& sources) {
  for (const bool selects : {true, false})
    for (const Given& source : sources) {
      for (const Given::Setting& given : source.settings) {
        if (given.option->info.selects != selects) continue;
        if (source.file.empty()) set_option(options, given.option->name, given.text, given.origin);
        else set_from_file(options, source, given);
      }
      if (!selects) settle_lr(options, source);
    }
}

Selection model_of(const std::vector<Given>& sources) {
  TrainOptions options;
  apply_settings(options, sources);
  settle_model(options);
  return options.model;
}

}  // namespace ringtape
