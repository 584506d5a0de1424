#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// Makes text from untrusted files safe for a terminal or a log. Characters that would control a terminal or hide other
// text (control characters, U+0080 to U+009F, changes of writing direction) become visible: "\x1b", "\u202e". A line
// end becomes `line_end`.
std::string printable(std::string_view text, std::string_view line_end = " ");
// The same for a name in a message: at most its first 100 bytes, then "...".
std::string printable_name(std::string_view name);

}  // namespace ringtape
