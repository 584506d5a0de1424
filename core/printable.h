#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// Text that may hold what a file brought, as it may go to a terminal or a log: what would steer a terminal or hide other text (control
// characters, in UTF-8 also U+0080 to U+009F and those of the writing direction) becomes visible: "\x1b", "\u202e". A line end becomes
// `line_end`.
std::string printable(std::string_view text, std::string_view line_end = " ");

}  // namespace ringtape
