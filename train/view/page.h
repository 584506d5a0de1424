#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// The page of `ringtape view`, train/view/page/, as one HTML text with its styles and scripts inside.
std::string_view page();

// The same with its data inside, which need no server: `json` as RunList::everything() gives it.
std::string page_with(const std::string& json);

}  // namespace ringtape
