#include "comm/launch/launch.h"

#include <algorithm>

#include "comm/launch/elastic.h"
#include "comm/store/token.h"
#include "core/check.h"
#include "core/env.h"
#include "core/parse.h"
#include "train/cli/common.h"
#include "train/run/stop.h"

namespace ringtape::cli {
namespace {

constexpr int kMaxLaunchRanks = 4096;

// -n 4, or -n 4,2 for machines with different numbers of ranks.
std::vector<int> ranks_on_machines(const std::string& text) {
  std::vector<int> out;
  int sum = 0;
  for (const std::string& word : split_text(text)) {
    const auto ranks = parse_number(word, 1, kMaxLaunchRanks - sum);
    RT_CHECK_AS(UsageError, ranks, "-n: expected a whole number from 1 to ", kMaxLaunchRanks,
                ", or one for each machine as in 4,2, got '", text, "'");
    sum += out.emplace_back(*ranks);
  }
  return out;
}

std::optional<std::set<int>> shown_ranks(const std::string& text, int ranks) {
  if (text == "all") return {};
  std::set<int> out;
  if (text == "none") return out;
  for (const std::string& word : split_text(text)) {
    const auto rank = parse_number(word, 0, ranks - 1);
    RT_CHECK_AS(UsageError, rank, "--tee ", text, ": expected all, none or ranks from 0 to ", ranks - 1, ", as in 0,2");
    out.insert(*rank);
  }
  return out;
}

// The command to launch: a ringtape command, unless it is a path or --exec says that it is a program.
std::vector<std::string> command_of(const Invocation& invocation) {
  std::vector<std::string> command = invocation.after;
  if (command.empty() && invocation.flag("join")) return {};  // the job's
  RT_CHECK_AS(UsageError, !command.empty() && !command[0].empty(),
              "launch: needs a command after --, as in ringtape launch -n 4 -- train");
  if (!invocation.has("exec") && command[0].find('/') == std::string::npos) command.insert(command.begin(), "");
  return command;
}

bool has_flag(const std::vector<std::string>& command, const std::string& flag) {
  return std::any_of(command.begin(), command.end(),
                     [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

// Whether it is a ringtape command that trains a run, which can be resumed.
bool is_training(const comm::Launch& launch) {
  return !launch.command.empty() && launch.command[0].empty() &&
         (launch.command[1] == "train" || launch.command[1] == "pretrain");
}

// Elastic training is told so; what starts again resumes, with --overwrite by itself (train/cli/restarted.h). Does
// nothing the second time.
void add_training_flags(comm::Launch& l, const Invocation& invocation) {
  if (!is_training(l) || (l.max_restarts == 0 && !l.elastic)) return;
  RT_CHECK_AS(UsageError, has_flag(l.command, "--run"), l.elastic ? "--elastic" : "--max-restarts", ": needs ",
              l.command[1], " --run NAME, to resume the run from its checkpoints");
  if (!l.elastic && !has_flag(l.command, "--resume") && !has_flag(l.command, "--overwrite"))
    l.on_restart = {"--resume"};
  if (l.elastic && !has_flag(l.command, "--elastic")) l.command.emplace_back("--elastic");
  if (const std::string* least = invocation.flag("min-ranks"); least && !has_flag(l.command, "--min-ranks"))
    l.command.insert(l.command.end(), {"--min-ranks", *least});
}

// The store of --join: node0:29500 or [::1]:29500.
void set_store(comm::Launch& l, const Invocation& invocation, const std::string& where) {
  for (const char* name : {"nnodes", "node-rank", "master-addr", "master-port"})
    RT_CHECK_AS(UsageError, !invocation.flag(name), "--join ", where, ": not with --", name);
  const size_t colon = std::min(where.rfind(':'), where.size());
  const auto port = parse_number(where.substr(std::min(colon + 1, where.size())), 1, 65535);
  l.master_addr = where.substr(0, colon);
  if (l.master_addr.starts_with('[') && l.master_addr.ends_with(']'))
    l.master_addr = l.master_addr.substr(1, l.master_addr.size() - 2);
  RT_CHECK_AS(UsageError, !l.master_addr.empty() && port, "--join: expected HOST:PORT, as in node0:29500, got '", where,
              "'");
  l.master_port = *port;
  RT_CHECK_AS(UsageError, !l.token.empty(), "--join: needs the environment variable RINGTAPE_TOKEN, that of the ",
              "job's store");
  l.joins = true;
}

void set_nodes(comm::Launch& l, const Invocation& invocation) {
  l.nodes = number_flag(invocation, "nnodes", 1, kMaxLaunchRanks, 1);
  l.node = number_flag(invocation, "node-rank", 0, l.nodes - 1, 0);
  l.master_port = number_flag(invocation, "master-port", 0, 65535, 0);
  if (const std::string* address = invocation.flag("master-addr")) l.master_addr = *address;
  if (l.nodes > 1) {
    for (const char* name : {"node-rank", "master-addr", "master-port"})
      RT_CHECK_AS(UsageError, invocation.flag(name), "--nnodes ", l.nodes, ": also needs --", name);
    RT_CHECK_AS(UsageError, l.master_port > 0,
                "--master-port 0: not for several nodes; give the same port on all of them");
    RT_CHECK_AS(UsageError, !l.token.empty(), "--nnodes ", l.nodes,
                ": needs the environment variable RINGTAPE_TOKEN, the same secret on all nodes (openssl rand -hex 16)");
  } else if (l.token.empty()) {
    RT_CHECK_AS(UsageError, !l.elastic || !invocation.flag("master-addr"), "--elastic --master-addr ", l.master_addr,
                ": needs the environment variable RINGTAPE_TOKEN, for those who join (openssl rand -hex 16)");
    l.token = comm::random_token();
  }
}

comm::Launch launch_of(const Invocation& invocation) {
  comm::Launch l;
  l.command = command_of(invocation);
  RT_CHECK_AS(UsageError, invocation.flag("n"), "launch: needs -n, the number of ranks on this machine");
  const std::vector<int> sizes = ranks_on_machines(*invocation.flag("n"));
  l.token = env::token();
  const std::string* const store = invocation.flag("join");
  l.elastic = store || invocation.has("elastic");
  if (store) set_store(l, invocation, *store);
  else set_nodes(l, invocation);
  RT_CHECK_AS(UsageError, sizes.size() == 1 || int(sizes.size()) == l.nodes, "-n ", *invocation.flag("n"), ": has ",
              sizes.size(), " numbers of ranks, but ", l.nodes == 1 ? "there is " : "--nnodes is ", l.nodes,
              l.nodes == 1 ? " machine" : "");
  if (sizes.size() > 1) l.sizes = sizes;
  l.local_size = sizes.size() > 1 ? sizes[size_t(l.node)] : sizes[0];
  const bool has_least = number_flag(invocation, "min-ranks", 1, kMaxLaunchRanks, 0) > 0;
  RT_CHECK_AS(UsageError, !has_least || l.elastic, "--min-ranks: needs --elastic or --join");
  RT_CHECK_AS(UsageError, !has_least || !l.command.empty(),
              "--min-ranks: needs a command after --; the job's has its own");
  if (const std::string* folder = invocation.flag("log-dir")) l.log_dir = *folder;
  l.max_restarts = number_flag(invocation, "max-restarts", 0, 1'000'000, l.elastic ? comm::kElasticRestarts : 0);
  l.grace = comm::Seconds(number_flag(invocation, "grace", 0.0, 1e6, l.grace.count()));
  l.timeout = comm::Seconds(number_flag(invocation, "timeout", 0.0, 1e8, 0.0));
  l.pin = !invocation.has("no-pin");
  add_training_flags(l, invocation);
  if (l.joins) comm::join_job(l);
  add_training_flags(l, invocation);  // to the job's command
  if (const std::string* ranks = invocation.flag("tee")) l.shown = shown_ranks(*ranks, l.ranks());
  return l;
}

}  // namespace

Command launch_command() {
  Command command;
  command.name = "launch";
  command.summary = "Starts the ranks of a job on this machine, shows their output, and ends all when one fails.";
  command.usage = "-n N [FLAGS] -- COMMAND...";
  command.examples = {"launch -n 4 -- train --data mnist --strategy ddp",
                      "launch -n 2 --log-dir logs --max-restarts 3 -- train --run digits",
                      "launch -n 8 --nnodes 2 --node-rank 0 --master-addr node0 --master-port 29500 -- train",
                      "launch -n 4 --elastic --min-ranks 2 -- train --run digits",
                      "launch -n 4 --join node0:29500",
                      "launch -n 2 --exec -- python3 my_script.py"};
  command.takes_command = true;
  command.flags = {
      {"Ranks", "n", "N", "ranks on each machine; of machines that differ a list in their order, as in 4,2", ""},
      {"Ranks", "exec", "", "the command after -- is a program, not a ringtape command; always so if its name has a /",
       ""},
      {"Ranks", "no-pin", "", "do not bind each rank to its own cores", ""},
      {"Machines", "nnodes", "N", "number of machines", "1"},
      {"Machines", "node-rank", "N", "number of this machine, from 0", "0"},
      {"Machines", "master-addr", "HOST", "name or address of machine 0, to which all ranks connect", "127.0.0.1"},
      {"Machines", "master-port", "PORT", "port on machine 0; 0: any free one, for a single machine only", "0"},
      {"Output", "tee", "RANKS", "ranks whose output is shown: all, none, or a list as in 0,2", "all"},
      {"Output", "log-dir", "DIR", "also write each rank's output to DIR/attempt_0/rank_0.log and so on", ""},
      {"Elastic jobs", "elastic", "",
       "when a rank ends, the others go on and it alone is started again; train gets --elastic", ""},
      {"Elastic jobs", "min-ranks", "N", "for train and pretrain: fewer ranks do not go on", "1"},
      {"Elastic jobs", "join", "HOST:PORT",
       "start ranks for the elastic job whose store is there, of ringtape store or launch --elastic; without COMMAND "
       "they run the job's",
       ""},
      {"Failures", "max-restarts", "N",
       "restart all ranks after a failure, except for wrong usage, at most N times; train and pretrain continue with "
       "--resume; of an elastic job, single ranks, N times in all",
       "0, elastic 10"},
      {"Failures", "grace", "SECONDS", "seconds from SIGTERM to SIGKILL for the other ranks when one has failed", "10"},
      {"Failures", "timeout", "SECONDS", "end the job after this time, with exit code 124; 0: never", "0"},
  };
  command.run = [](const Invocation& invocation) {
    const comm::Launch launch = launch_of(invocation);
    if (is_training(launch)) hold_stops();
    return comm::launch(launch);
  };
  return command;
}

}  // namespace ringtape::cli
