#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "train/cli/command.h"

namespace ringtape::cli {

// The width in columns: $COLUMNS, else that of the terminal, else 80.
static size_t width() {
  constexpr int kLeast = 40, kMax = 100;
  const char* const columns = std::getenv("COLUMNS");
  int out = columns ? std::atoi(columns) : 0;
  winsize size{};
  if (out <= 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) out = size.ws_col;
  return size_t(out <= 0 ? 80 : std::clamp(out, kLeast, kMax));
}

// Wraps `text`, indented by `indent` columns; the caller has written the first indentation.
static std::string wrapped(const std::string& text, size_t indent) {
  const size_t most = width();
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (column > indent && column + 1 + (end - begin) > most) out += '\n' + std::string(indent, ' '), column = indent;
    else if (column > indent) out += ' ', ++column;
    out.append(text, begin, end - begin);
    column += end - begin;
    begin = end + 1;
  }
  return out + '\n';
}

// `term` and its text from column `indent` on; the text is below the term if the term is longer or if too little space
// would remain.
static std::string entry(const std::string& term, const std::string& text, size_t indent) {
  constexpr size_t kBelow = 6, kLeastText = 32;
  const bool beside = indent + kLeastText <= width();
  if (!beside) indent = kBelow;
  return term +
         (beside && term.size() < indent ? std::string(indent - term.size(), ' ') : "\n" + std::string(indent, ' ')) +
         wrapped(text, indent);
}

// A command that can be typed as shown. If it is too long for a line, its comment is above it, and a \ precedes each
// line break.
static std::string example(const std::string& text) {
  const std::string line = "  ringtape " + text;
  if (line.size() <= width()) return line + "\n";
  const std::string indent(6, ' ');
  const size_t comment = line.find(" #"), end = line.find_last_not_of(' ', comment);
  std::string out = comment == std::string::npos ? "" : " " + line.substr(comment) + "\n",
              rest = line.substr(0, end + 1);
  while (rest.size() > width()) {
    const size_t space = rest.rfind(' ', width() - 2);
    if (space <= indent.size()) break;  // one word longer than the line
    out += rest.substr(0, space) + " \\\n";
    rest = indent + rest.substr(space + 1);
  }
  return out + rest + "\n";
}

// Whether a flag belongs to a component that is selected.
static bool is_chosen(const Flag& flag, const Invocation& invocation) {
  const std::string* const named = flag.owner.empty() ? nullptr : invocation.flag(flag.kind);
  return named && ("," + *named + ",").find("," + flag.owner + ",") != std::string::npos;
}

// The flags of --help-all; or those that are used most, and those of selected components.
static std::vector<Flag> shown_flags(const Command& command, const Invocation& invocation, bool all) {
  if (all) return command.flags;
  std::vector<Flag> out;
  for (const std::string& name : command.usual) {
    Flag flag = *std::ranges::find(command.flags, name, &Flag::name);
    flag.group = "Used most";
    out.push_back(std::move(flag));
  }
  for (const Flag& flag : command.flags)
    if (flag.owner.empty() ? command.usual.empty() : is_chosen(flag, invocation)) out.push_back(flag);
  return out;
}

// How to see the other flags.
static std::string hint_of_more(const Command& command) {
  std::set<std::string> kinds;
  for (const Flag& flag : command.flags)
    if (!flag.kind.empty()) kinds.insert(" --" + flag.kind + " NAME");
  std::string out = "`ringtape " + command.name + " --help-all` shows all flags";
  if (kinds.empty() && command.usual.empty()) return "";
  if (!kinds.empty()) out += ", --help with";
  size_t left = kinds.size();
  for (const std::string& kind : kinds) out += kind + (--left > 1 ? "," : left == 1 ? " or" : "");
  return "\n" + wrapped(out + (kinds.empty() ? "." : " also those of that choice."), 0);
}

std::string command_help(const Command& command, const Invocation& invocation, bool all) {
  const std::string usage = "Usage: ringtape " + command.name + " ";
  std::string out = wrapped(command.summary, 0) + "\n" + usage + wrapped(command.usage, usage.size());
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const std::string& text : command.examples) out += example(text);
  const auto defaults = command.defaults ? command.defaults(invocation) : std::map<std::string, std::string>();
  const std::vector<Flag> shown = shown_flags(command, invocation, all);
  size_t longest = 0;
  for (const Flag& f : shown) longest = std::max(longest, f.typed().size() + 1 + f.placeholder.size());
  const size_t indent = 2 + longest + 2;
  std::string group;
  for (const Flag& f : shown) {
    if (group != f.group) out += "\n" + (group = f.group) + ":\n";
    const auto other = defaults.find(f.name);
    const std::string& fallback = other != defaults.end() && f.owner.empty() ? other->second : f.fallback;
    const std::string text = f.help + (fallback.empty() ? "" : " [" + fallback + "]");
    out += entry("  " + f.typed() + " " + f.placeholder, text, indent);
  }
  if (!command.see.empty()) out += "\n" + wrapped(command.see, 0);
  return all ? out : out + hint_of_more(command);
}

std::string overview(const std::vector<Command>& commands, const std::string& word) {
  std::string out = word.empty() ? wrapped("ringtape trains neural networks in C++, on CPUs and GPUs.", 0) +
                                       "\nUsage: ringtape COMMAND [FLAGS]\n\nCommands:\n"
                                 : "";
  const auto shown = [&](const Command& c) { return word.empty() || c.name.starts_with(word + " "); };
  size_t longest = 0;
  for (const Command& c : commands)
    if (shown(c)) longest = std::max(longest, c.name.size());
  for (const Command& c : commands)
    if (shown(c)) out += entry("  " + c.name, c.summary, longest + 4);
  if (!word.empty())
    return "Usage: ringtape " + word + " COMMAND [FLAGS]\n\nCommands:\n" + out + "\n`ringtape " + word +
           " COMMAND --help` explains a command.\n";
  out += "\nExamples:\n" + example("train                                   # generated images, no files needed") +
         example("train --data mnist --data-dir DIR --epochs 5") + example("evaluate runs/NAME");
  return out + "\n" +
         wrapped(
             "`ringtape COMMAND --help` explains a command, `ringtape list` lists the available choices, `ringtape "
             "--version` prints the version.",
             0);
}

}  // namespace ringtape::cli
