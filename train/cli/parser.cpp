#include <algorithm>
#include <cstdio>

#include "core/check.h"
#include "core/registry.h"
#include "train/cli/command.h"
#include "train/run/version.h"
#include "train/settings/aliases.h"

namespace ringtape::cli {
namespace {

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
  throw UsageError(
      "unknown flag " + name +
      (meant.empty() ? "; `ringtape " + command.name + " --help-all` lists all" : "; did you mean " + meant + "?"));
}

// The value of a switch.
bool is_true(const std::string& flag, const std::string& value) {
  RT_CHECK_AS(UsageError, value == "true" || value == "false", flag, ": expected true or false, got '", value, "'");
  return value == "true";
}

bool takes_list(const std::string& placeholder) { return placeholder == "LIST" || placeholder.ends_with(",..."); }

enum class Help : uint8_t { none, usual, all };

// The words of a command line: values of flags, as typed ("--lr", "-n"), and the rest.
struct Words {
  std::map<std::string, std::string> values;  // the last one of each flag; of a flag for a list, all of them
  std::vector<std::string> rest;              // in their order; unknown flags, too
};

// --lr 0.1, --lr=0.1, -n 2, -n2. A value may look like a flag, an optional one may not.
Words split(const Command& command, std::vector<std::string> args) {
  std::map<std::string, std::string> placeholders = {{"-h", ""}, {"--help", ""}, {"--help-all", ""}};
  for (const Flag& flag : command.flags) placeholders.emplace(flag.typed(), flag.placeholder);
  const auto is_flag = [](const std::string& arg) { return arg.size() > 1 && arg[0] == '-'; };
  Words out;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--") {
      out.rest.insert(out.rest.end(), args.begin() + long(i), args.end());
      break;
    }
    const bool is_long = arg.starts_with("--");
    const size_t end = std::min(is_long ? arg.find('=') : 2, arg.size());
    const auto known = is_flag(arg) ? placeholders.find(arg.substr(0, end)) : placeholders.end();
    if (known == placeholders.end()) {
      out.rest.push_back(arg);
      continue;
    }
    const auto& [typed, placeholder] = *known;
    const std::string attached = arg.substr(std::min(end + is_long, arg.size()));
    std::string& value = out.values[typed];
    const std::string before = takes_list(placeholder) ? value + (value.empty() ? "" : ",") : "";
    value = attached;
    if (placeholder.empty() && !is_long && !attached.empty()) {  // -hx is -h -x
      value = "true";
      args[i--] = "-" + attached;
    } else if (attached.empty()) {
      const bool optional = placeholder.empty() || placeholder[0] == '[';
      const bool takes = !placeholder.empty() && i + 1 < args.size() && !(optional && is_flag(args[i + 1]));
      RT_CHECK_AS(UsageError, takes || optional, typed, ": needs a value");
      value = takes ? args[++i] : "true";
    }
    value.insert(0, before);
  }
  return out;
}

Invocation parse(const Command& command, std::vector<std::string> args, Help& wanted) {
  Invocation out;
  if (const auto dashes = std::find(args.begin(), args.end(), "--"); command.takes_command && dashes != args.end()) {
    out.after.assign(dashes + 1, args.end());
    args.erase(dashes, args.end());
  }
  for (std::string& arg : args) arg = normalised(std::move(arg));
  Words words = split(command, std::move(args));
  const auto on = [&](const char* flag) {
    const auto given = words.values.find(flag);
    return given != words.values.end() && is_true(flag, given->second);
  };
  wanted = on("--help-all") ? Help::all : on("--help") || on("-h") ? Help::usual : Help::none;
  const bool help = wanted != Help::none;
  for (const Flag& flag : command.flags) {
    const auto given = words.values.extract(flag.typed());  // only once: components may share a flag
    if (!given) continue;
    RT_CHECK_AS(UsageError, !given.mapped().starts_with("--"), given.key(), ": needs a value");
    out.flags.emplace_back(flag.name, given.mapped());
  }
  for (const std::string& arg : words.rest) {
    if (arg.starts_with('-') && arg != "-") unknown_flag(command, arg);
    RT_CHECK_AS(UsageError, help || !command.takes_command, "unexpected argument '", arg,
                "'; the command to run comes after --: ringtape ", command.name, " ", command.usage);
    out.positionals.push_back(arg);
  }
  RT_CHECK_AS(UsageError, help || out.positionals.size() <= command.positionals, "unexpected argument '",
              out.positionals.empty() ? "" : out.positionals[command.positionals], "'; usage: ringtape ", command.name,
              " ", command.usage);
  return out;
}

// The command that the first words name, and the number of these words; null if there is none.
const Command* find_command(const std::vector<Command>& commands, const std::vector<std::string>& args, size_t& words) {
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

[[noreturn]] void unknown_command(const std::vector<Command>& commands, const std::vector<std::string>& args) {
  std::vector<std::string> known, below;
  for (const Command& command : commands) {
    const size_t space = command.name.find(' ');
    if (const std::string word = command.name.substr(0, space); known.empty() || known.back() != word)
      known.push_back(word);
    if (space != std::string::npos && args[0] == known.back()) below.push_back(command.name.substr(space + 1));
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
  return value && is_true("--" + name, *value);
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
