#pragma once
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/check.h"

namespace ringtape {

// Lookup by name of models, methods, data sets, optimizers, algorithms ... A registry is a range of entries, or of
// pointers to them, that lives as long as the program. An entry has a member `name`. A program adds entries of its own
// before main() begins, by a static object in the file that defines what they make.

// Number of insertions, deletions, replacements and swaps of neighbours that turn one word into the other (optimal
// string alignment). '-' equals '_', and case is ignored.
int edit_distance(std::string_view a, std::string_view b);

// The known word that was probably meant; empty if none is close.
std::string nearest(std::string_view word, std::span<const std::string> known);

// "unknown model 'mpl'; did you mean mlp?", or the list of known words.
std::string unknown(std::string_view what, std::string_view word, std::span<const std::string> known);

// Throws UsageError with `origin` and the text of unknown(), unless the word is known.
void check_known(std::string_view what, std::string_view word, std::span<const std::string> known,
                 std::string_view origin = "");

namespace detail {
template <class Item> auto& entry(Item& item) {
  if constexpr (std::is_pointer_v<Item>) return *item;
  else return item;
}
}  // namespace detail

template <class Registry> std::vector<std::string> names_of(const Registry& registry) {
  std::vector<std::string> out;
  for (const auto& item : registry) out.emplace_back(detail::entry(item).name);
  return out;
}

// The entry with that name, such as find_entry(models(), "mlp", "model"). Throws like check_known.
template <class Registry>
auto& find_entry(Registry&& registry, std::string_view name, std::string_view what, std::string_view origin = "") {
  for (auto& item : registry)
    if (detail::entry(item).name == name) return detail::entry(item);
  throw UsageError(std::string(origin) + unknown(what, name, names_of(registry)));
}

// Ends the program with exit code 2 and a line that names the entry.
[[noreturn]] void refuse_second_entry(std::string_view name);

// Adds an entry before main() begins. Its name must be new.
template <class Entry> void add_entry(std::vector<Entry>& registry, const Entry& entry) {
  for (const Entry& e : registry)
    if (std::string_view(e.name) == entry.name) refuse_second_entry(entry.name);
  registry.push_back(entry);
}

}  // namespace ringtape
