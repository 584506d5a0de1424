#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ringtape::cli {

// A flag of a command, for --help and the parser.
struct Flag {
  std::string group, name;            // "Optimizer", "batch-size"; one letter is -n
  std::string placeholder;            // "N"; "[N]": optional, then "true"; empty for a switch
  std::string help, fallback;         // `fallback`: the default, as text
  std::string kind = "", owner = "";  // "optimizer", "lars": shown with --optimizer lars or --help-all; empty: always

  std::string typed() const { return (name.size() == 1 ? "-" : "--") + name; }
};

struct Invocation {
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> flags;  // name and text, in the order of Command::flags
  std::vector<std::string> command_line;                   // the whole command line as typed
  std::vector<std::string> after;                          // the words after "--"

  const std::string* flag(const std::string& name) const;  // null if not given
  bool has(const std::string& name) const;                 // whether a switch is on
};

struct Command {
  std::string name;     // "train"; "bench step" for a subcommand of a subcommand
  std::string summary;  // one line
  std::string usage;    // the rest of the usage line: "RUN|FILE [FLAGS]"
  std::vector<std::string> examples;
  std::vector<Flag> flags;
  std::vector<std::string> usual = {};  // the flags that --help shows, in this order; none: all without an owner
  std::string see = "";                 // the end of the help: other commands
  size_t positionals = 0;               // the maximum
  bool takes_command = false;           // takes a command after "--"
  bool meets = false;                   // its ranks wait for each other
  // What flags are if they are not given, in place of Flag::fallback, by name.
  std::function<std::map<std::string, std::string>(const Invocation&)> defaults = {};
  std::function<int(const Invocation&)> run = {};  // returns the exit code; throws for errors
};

Command train_command();
Command pretrain_command();
Command find_lr_command();
Command evaluate_command();
Command embed_command();
Command predict_command();
Command serve_command();
Command export_command();
Command view_command();
Command runs_command();
Command bench_step_command();
Command bench_inference_command();
Command bench_tune_command();
Command bench_collectives_command();
Command launch_command();
Command store_command();
Command compare_command();
Command data_info_command();
Command data_verify_command();
Command data_download_command();
Command doctor_command();
Command list_command();

// Finds the command in argv, stores it in `found`, parses its flags and runs it; prints help if asked. Returns the exit
// code. Throws UsageError for unknown commands and flags, with the nearest name.
int dispatch_command(const std::vector<Command>& commands, int argc, const char* const* argv, const Command*& found);

// The help text of a command. `invocation`: its selected components' flags are shown, too; `all`: those of all
// components.
std::string command_help(const Command& command, const Invocation& invocation, bool all);
// The list of all commands, or of those whose first word is `word`.
std::string overview(const std::vector<Command>& commands, const std::string& word = "");

}  // namespace ringtape::cli
