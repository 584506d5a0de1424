// The only file that includes CLI11.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <list>

#include "core/check.h"
#include "core/registry.h"
#include "train/cli/command.h"
#include "train/run/version.h"
#include "train/settings/aliases.h"

namespace ringtape::cli {
namespace {

// A command as CLI11 sees it: every value is text, which the command interprets.
struct Parser {
  explicit Parser(const Command& command) {
    app.allow_extras();
    app.set_help_flag();
    app.add_flag("-h,--help", help);
    app.add_flag("--help-all", help_all);
    for (const Flag& flag : command.flags) {
      if (std::ranges::find(names, flag.name) != names.end()) continue;  // of another component
      names.push_back(flag.name);
      std::string& value = values.emplace_back();
      CLI::Option* option = flag.placeholder.empty() ? app.add_flag(flag.typed(), value)
                                                     : app.add_option(flag.typed(), value);
      if (flag.placeholder.starts_with('[')) option->expected(0, 1)->default_str("true");
      options.push_back(option->take_last());
    }
  }
  CLI::App app;
  bool help = false, help_all = false;
  std::vector<std::string> names;
  std::list<std::string> values;
  std::vector<CLI::Option*> options;
};

// Turns --batch_size into --batch-size.
std::string normalised(std::string arg) {
  if (arg.starts_with("--"))
    std::replace(arg.begin(), arg.begin() + long(std::min(arg.find('='), arg.size())), '_', '-');
  return arg;
}

[[noreturn]] void unknown_flag(const Command& command, const std::string& arg) {
  const std::string name = arg.substr(0, arg.find('='));
  std::vector<std::string> known = {"--help", "--help-all"};
  for (const Flag& flag : command.flags) known.push_back(flag.typed());
  const auto has = [&](const std::string& flag) {
    return std::find(known.begin(), known.end(), "--" + flag) != known.end();
  };
  if (const Alias* alias = find_alias(name.substr(std::min(name.find_first_not_of('-'), name.size())));
      alias && has(alias->flag.empty() ? "epochs" : std::string(alias->flag)))
    throw UsageError("unknown flag " + name + alias_text(*alias));
  std::string meant = nearest(name, known);
  if (name.size() > 2 && name[1] != '-') meant = nearest("-" + name, known);  // a long flag with one dash: -lr
  throw UsageError("unknown flag " + name +
                   (meant.empty() ? "; `ringtape " + command.name + " --help-all` lists all"
                                  : "; did you mean " + meant + "?"));
}

enum class Help : uint8_t { none, usual, all };

Invocation parse(const Command& command, std::vector<std::string> args, Help& wanted) {
  Parser parser(command);
  Invocation out;
  if (const auto dashes = std::find(args.begin(), args.end(), "--"); command.takes_command && dashes != args.end()) {
    out.after.assign(dashes + 1, args.end());
    args.erase(dashes, args.end());
  }
  std::vector<std::string> reversed;
  for (const std::string& arg : args) reversed.insert(reversed.begin(), normalised(arg));
  try {
    parser.app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string what = e.what();
    throw UsageError(what.substr(0, what.find(':')) + ": needs a value");
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  wanted = parser.help_all ? Help::all : parser.help ? Help::usual : Help::none;
  const bool help = wanted != Help::none;
  auto value = parser.values.begin();
  for (size_t i = 0; i < parser.names.size(); ++i, ++value) {
    if (parser.options[i]->count() == 0) continue;
    const std::string& name = parser.names[i];
    // CLI11 accepts any word after a flag as its value.
    RT_CHECK_AS(UsageError, !value->starts_with("--"), name.size() == 1 ? "-" : "--", name, ": needs a value");
    out.flags.emplace_back(name, *value);
  }
  for (const std::string& arg : parser.app.remaining()) {
    if (arg.starts_with('-') && arg != "-") unknown_flag(command, arg);
    RT_CHECK_AS(UsageError, help || !command.takes_command, "unexpected argument '", arg,
                "'; the command to run comes after --: ringtape ", command.name, " ", command.usage);
    out.positionals.push_back(arg);
  }
  RT_CHECK_AS(UsageError, help || out.positionals.size() <= command.positionals, "unexpected argument '",
              out.positionals.empty() ? "" : out.positionals[command.positionals], "'; usage: ringtape ",
              command.name, " ", command.usage);
  return out;
}

// The command that the first words name, and the number of these words; null if there is none.
const Command* find_command(const std::vector<Command>& commands, const std::vector<std::string>& args,
                            size_t& words) {
  for (const Command& command : commands) {
    const size_t space = command.name.find(' ');
    words = space == std::string::npos ? 1 : 2;
    if (args[0] != command.name.substr(0, space)) continue;
    if (words == 1 || (args.size() > 1 && args[1] == command.name.substr(space + 1))) return &command;
  }
  return nullptr;
}

// Whether the word begins commands of two words, such as `data` in `data info`.
bool has_commands_below(const std::vector<Command>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(),
                     [&](const Command& c) { return c.name.starts_with(word + " "); });
}

[[noreturn]] void unknown_command(const std::vector<Command>& commands,
                                  const std::vector<std::string>& args) {
  std::vector<std::string> known, below;
  for (const Command& command : commands) {
    const size_t space = command.name.find(' ');
    if (const std::string word = command.name.substr(0, space); known.empty() || known.back() != word)
      known.push_back(word);
    if (space != std::string::npos && args[0] == known.back())
      below.push_back(command.name.substr(space + 1));
  }
  if (below.empty()) throw UsageError(unknown(args[0].starts_with('-') ? "flag" : "command", args[0], known));
  if (args.size() < 2) {
    std::string all = below[0];
    for (size_t i = 1; i < below.size(); ++i) all += (i + 1 < below.size() ? ", " : " or ") + below[i];
    throw UsageError("ringtape " + args[0] + ": needs one of these after it: " + all);
  }
  throw UsageError(unknown(args[0] + " command", args[1], below));
}

}  // namespace

const std::string* Invocation::flag(const std::string& name) const {
  for (const auto& [key, value] : flags)
    if (key == name) return &value;
  return nullptr;
}

bool Invocation::has(const std::string& name) const {
  const std::string* value = flag(name);
  RT_CHECK_AS(UsageError, !value || *value == "true" || *value == "false", "--", name,
              ": expected true or false, got '", *value, "'");
  return value && *value == "true";
}

int dispatch_command(const std::vector<Command>& commands, int argc, const char* const* argv, const Command*& found) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() > 1 && args[0] == "help") {  // `help bench step` means `bench step --help`
    args.erase(args.begin());
    args.push_back("--help");
  }
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    std::fputs(overview(commands).c_str(), stdout);
    return args.empty() ? 2 : 0;
  }
  if (args[0] == "--version" || args[0] == "-V" || args[0] == "version") {
    std::printf("ringtape %s (%s)\n", kVersion, kRevision);
    return 0;
  }
  size_t words = 1;
  const Command* command = find_command(commands, args, words);
  if (!command && args.size() == 2 && (args[1] == "--help" || args[1] == "-h") &&
      has_commands_below(commands, args[0])) {
    std::fputs(overview(commands, args[0]).c_str(), stdout);
    return 0;
  }
  if (!command) unknown_command(commands, args);
  found = command;
  Help help = Help::none;
  Invocation invocation = parse(*command, {args.begin() + long(words), args.end()}, help);
  if (help != Help::none) {
    std::fputs(command_help(*command, invocation, help == Help::all).c_str(), stdout);
    return 0;
  }
  invocation.command_line.assign(argv, argv + argc);
  return command->run(invocation);
}

}  // namespace ringtape::cli
