#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace ringtape {

// What other programs (PyTorch's and timm's scripts, Lightning, Hugging Face's Trainer)
// call a flag; all without dashes in front.
struct Alias {
  std::initializer_list<std::string_view> names;
  std::string_view flag;  // what it is here, "weight-decay"; empty: there is none of that meaning
  std::string_view hint;  // what to type, where it begins with --, or what else to know; may be empty
};
std::span<const Alias> aliases();
const Alias* find_alias(std::string_view name);  // '_' counts as '-'; null: there is none

// What to say of an unknown flag: "; did you mean --weight-decay?", or ": not there; ...".
std::string alias_text(const Alias& alias);

}  // namespace ringtape
