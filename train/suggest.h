#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ringtape {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other (optimal
// string alignment); '-' and '_' count as the same character, and so do upper and lower case.
int edit_distance(std::string_view a, std::string_view b);

// The known word that was probably meant, or an empty string where nothing is near.
std::string nearest(std::string_view word, std::span<const std::string> known);

// "unknown model 'mpl'; did you mean mlp?", or the list of what there is.
std::string unknown(std::string_view what, std::string_view word, std::span<const std::string> known);

}  // namespace ringtape
