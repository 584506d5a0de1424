#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace ringtape {

// The names that other programs (PyTorch's and timm's scripts, Lightning, Hugging Face's Trainer) have for a flag; all
// without leading dashes.
struct Alias {
  std::initializer_list<std::string_view> names;
  std::string_view flag;  // the flag here, "weight-decay"; empty: there is no such flag
  std::string_view hint;  // if it begins with --, what to type; else an explanation; may be empty
};
std::span<const Alias> aliases();
const Alias* find_alias(std::string_view name);  // '_' counts as '-'; null: no such alias

// Text to append to the error about an unknown flag: "; did you mean --weight-decay?", or ": not there; ...".
std::string alias_text(const Alias& alias);

}  // namespace ringtape
