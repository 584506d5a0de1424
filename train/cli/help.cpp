#include <algorithm>

#include "train/cli/command.h"

namespace ringtape::cli {

constexpr size_t kWidth = 100;  // columns

// `text` from column `indent` on, broken between words.
static std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (column > indent && column + 1 + (end - begin) > kWidth)
      out += '\n' + std::string(indent, ' '), column = indent;
    else if (column > indent)
      out += ' ', ++column;
    out.append(text, begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return out + '\n';
}

static std::string padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string command_help(const Command& command) {
  std::string out = command.summary + "\n\nUsage: ringtape " + command.name + " " + command.usage + "\n";
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const std::string& example : command.examples) out += "  ringtape " + example + "\n";
  size_t width = 0;
  for (const Flag& f : command.flags) width = std::max(width, f.typed().size() + 1 + f.placeholder.size());
  const size_t indent = 2 + width + 2;
  std::string group;
  for (const Flag& f : command.flags) {
    if (group != f.group) out += "\n" + (group = f.group) + ":\n";
    const std::string text = f.help + (f.fallback.empty() ? "" : " [" + f.fallback + "]");
    out += padded("  " + f.typed() + " " + f.placeholder, indent) + wrapped(text, indent);
  }
  return out;
}

std::string overview(const std::vector<Command>& commands, const std::string& word) {
  std::string out =
      word.empty() ? "ringtape trains neural networks from C++ alone, on CPUs and GPUs.\n\nUsage: ringtape COMMAND [FLAGS]\n\nCommands:\n"
                   : "";
  for (const Command& c : commands)
    if (word.empty() || c.name.starts_with(word + " ")) out += padded("  " + c.name, 16) + wrapped(c.summary, 16);
  if (!word.empty())
    return "Usage: ringtape " + word + " COMMAND [FLAGS]\n\nCommands:\n" + out + "\n`ringtape " + word + " COMMAND --help` explains one.\n";
  return out +
         "\nExamples:\n"
         "  ringtape train                                   # generated images, no files needed\n"
         "  ringtape train --data mnist --data-dir DIR --epochs 5\n"
         "  ringtape evaluate runs/NAME\n\n"
         "`ringtape COMMAND --help` explains a command, `ringtape --version` tells the version.\n";
}

}  // namespace ringtape::cli
