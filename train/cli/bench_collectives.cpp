#include <fmt/core.h>

#include <cstdio>
#include <optional>

#include "comm/bench/on_threads.h"
#include "comm/bench/simulation.h"
#include "comm/job/rendezvous.h"
#include "comm/transport/transports.h"
#include "core/parse.h"
#include "core/registry.h"
#include "train/cli/common.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/loop/world.h"
#include "train/run/version.h"

namespace ringtape::cli {
namespace {

using namespace comm;

constexpr int kMaxBenchRanks = 4096;
constexpr double kLatency = 30, kBandwidth = 1.5;  // defaults, typical of sockets on one host
constexpr double kSlower = 0.9;                    // --baseline fails below this fraction of its bandwidth

int64_t bytes_flag(const Invocation& invocation, const std::string& name, int64_t fallback) {
  const std::string* const given = invocation.flag(name);
  if (!given) return fallback;
  const auto bytes = parse_bytes(*given);
  RT_CHECK_AS(UsageError, bytes && *bytes >= 1 && *bytes <= size_t{1} << 40, "-", name,
              ": expected a number of bytes, as in 16K, 64M or 1G, got '", *given, "'");
  return int64_t(*bytes);
}

ReduceOp parse_reduce_op(const std::string& name) {
  std::vector<std::string> known;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
    if (name_of(op) == name) return op;
    known.emplace_back(name_of(op));
  }
  throw UsageError(unknown("reduction", name, known));
}

CollectiveSettings settings_of(const Invocation& invocation) {
  CollectiveSettings s;
  if (const std::string* name = invocation.flag("op")) s.kind = comm::parse_collective(*name);
  if (const std::string* name = invocation.flag("algorithm")) s.algorithm = *name;
  if (const std::string* name = invocation.flag("dtype")) s.dtype = parse_dtype(*name);
  if (const std::string* name = invocation.flag("redop")) s.op = parse_reduce_op(*name);
  s.least = bytes_flag(invocation, "b", s.least);
  s.most = bytes_flag(invocation, "e", std::max(s.most, s.least));
  s.factor = number_flag<int64_t>(invocation, "f", 2, 1 << 20, s.factor);
  s.warmup = number_flag<int64_t>(invocation, "warmup", 0, 1'000'000, s.warmup);
  s.iterations = number_flag<int64_t>(invocation, "iterations", 1, 1'000'000'000, s.iterations);
  s.check = invocation.has("check");
  s.limit = invocation.has("limit");
  s.timeout = comm::Seconds(number_flag(invocation, "timeout", 0.001, 1e8, s.timeout.count()));
  return s;
}

Json json_of(const Figures& f) {
  Json out{{"us", f.us}, {"algbw", f.algbw}, {"busbw", f.busbw}};
  if (f.wrong >= 0) out["wrong"] = f.wrong;
  return out;
}

void show(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

template <class... Names>
void heading(const char* size, const char* count, const char* type, const char* redop, const char* root,
             Names... figures) {
  std::string line = fmt::format("#{:>12}  {:>12}  {:>8}  {:>8}  {:>6}", size, count, type, redop, root);
  for (int side = 0; side < 2; ++side) line += fmt::format("  {:>10}  {:>7}  {:>7}  {:>6}", figures...);
  show(line);
}

// The output of rank 0: the table of nccl-tests, and the same as JSON.
class Report {
 public:
  Report(const CollectiveSettings& settings, const std::string& transport, int ranks) : settings_(settings) {
    json_ = {{"ringtape", kVersion},
             {"op", name_of(settings.kind)},
             {"transport", transport},
             {"algorithm", settings.algorithm},
             {"ranks", ranks},
             {"dtype", name_of(settings.dtype)},
             {"redop", name_of(settings.op)},
             {"warmup", settings.warmup},
             {"iterations", settings.iterations},
             {"rows", Json::list()}};
    show(fmt::format(
        "# ringtape {}: {} by {} over {}, {} ranks, {} iterations after {} warm-up calls; times of the slowest rank\n#",
        kVersion, name_of(settings.kind), settings.algorithm, transport, ranks, settings.iterations, settings.warmup));
    show(fmt::format("#{:60}{:<38}{}", "", "        out-of-place", "        in-place"));
    heading("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
    heading("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
    if (settings.limit)
      show("# last columns: the time that memory bandwidth permits in us, and its ratio to the time in place");
  }

  void row(const CollectiveRow& r) {
    using enum comm::Collective;
    const auto kind = settings_.kind;
    const bool reduces = kind == all_reduce || kind == reduce || kind == reduce_scatter;
    const bool root = kind == broadcast || kind == reduce || kind == gather || kind == scatter;
    std::string line = fmt::format("{:>13}  {:>12}  {:>8}  {:>8}  {:>6}", r.bytes, r.count, name_of(settings_.dtype),
                                   reduces ? name_of(settings_.op) : "none", root ? 0 : -1);
    for (const Figures* f : {&r.out_of_place, &r.in_place}) {
      line += fmt::format("  {:>10.2f}  {:>7.2f}  {:>7.2f}  {:>6}", f->us, f->algbw, f->busbw,
                          f->wrong < 0 ? "N/A" : text(f->wrong));
      bus_ += f->busbw;
      wrong_ += std::max<int64_t>(f->wrong, 0);
    }
    if (r.limit_us > 0) line += fmt::format("  {:>10.2f}  {:>5.1f} %", r.limit_us, 100 * r.limit_us / r.in_place.us);
    show(line);
    Json& row = json_["rows"].push_back({{"bytes", r.bytes},
                                         {"count", r.count},
                                         {"algorithm", r.algorithm},
                                         {"out_of_place", json_of(r.out_of_place)},
                                         {"in_place", json_of(r.in_place)}});
    if (r.limit_us > 0) row["limit_us"] = r.limit_us;
  }

  // Returns the exit code.
  int finish(const std::string* json, const std::string* baseline) {
    show(fmt::format("# Out of bounds values : {} {}", wrong_,
                     wrong_            ? "FAILED"
                     : settings_.check ? "OK"
                                       : "(not checked)"));
    show(fmt::format("# Avg bus bandwidth    : {:g} GB/s", bus_ / double(2 * json_["rows"].size())));
    if (json) write_file(*json, json_.text(2) + "\n");
    const int slower = baseline ? compare(*baseline) : 0;
    return wrong_ > 0 || slower > 0 ? 1 : 0;
  }

 private:
  // The number of bandwidths below the baseline's.
  int compare(const std::string& path) const {
    constexpr int64_t kLongest = 64 << 20;  // maximum bytes
    const Json before = parse_json(read_file(path, kLongest), path);
    RT_CHECK_AS(FormatError, before.is_object() && before.contains("rows") && before["rows"].is_list(), path,
                ": not a file that --json has written");
    for (const char* key : {"op", "transport", "algorithm", "ranks", "dtype", "redop"}) {
      const Json* was = before.find(key);
      RT_CHECK_AS(UsageError, was && *was == json_[key], "--baseline ", path, ": has ", key, " ",
                  was ? was->text() : "null", ", this run has ", json_[key].text());
    }
    int slower = 0, compared = 0;
    for (const Json& now : json_["rows"])
      for (const Json& old : before["rows"]) {
        const JsonFields row(old, path + ": rows");
        if (now["bytes"] != row.integer("bytes")) continue;
        for (const char* side : {"out_of_place", "in_place"}) {
          const double was = row.object(side).real("busbw", 0), is = now[side]["busbw"].get<double>();
          ++compared;
          if (is >= kSlower * was) continue;
          ++slower;
          show(fmt::format("# SLOWER: {} bytes {}: {:.3f} GB/s, {:.0f} % of the baseline's {:.3f}",
                           now["bytes"].get<int64_t>(), side, is, 100 * is / was, was));
        }
      }
    RT_CHECK_AS(UsageError, compared > 0, "--baseline ", path, ": has none of these sizes");
    if (slower == 0) show(fmt::format("# All bus bandwidths are at least {:g} % of the baseline's", 100 * kSlower));
    return slower;
  }

  const CollectiveSettings& settings_;
  Json json_;
  double bus_ = 0;
  int64_t wrong_ = 0;
};

comm::Topology topology_of(const Invocation& invocation) {
  const double latency = number_flag(invocation, "latency", 0.0, 1e9, kLatency),
               bandwidth = number_flag(invocation, "bandwidth", 1e-6, 1e6, kBandwidth);
  const comm::LinkCost cost{1e-6 * latency, 1e-9 / bandwidth};
  comm::Topology topology = comm::Topology::one_switch(cost);
  topology.island = number_flag(invocation, "island", 1, kMaxBenchRanks, kMaxBenchRanks);
  if (topology.island < kMaxBenchRanks) topology.inside = {cost.alpha / 10, cost.beta / 10};
  return topology;
}

bool in_one_process(const std::string& transport) {
  return transport == "simulated" || (transport != "auto" && find_transport(transport).one_process);
}

// Runs inside an existing job, whose processes are the ranks.
int run_in(const comm::Job& job, const std::string& transport, const CollectiveSettings& settings,
           const Invocation& invocation) {
  RT_CHECK_AS(UsageError, !in_one_process(transport), "--transport ", transport,
              ": runs in one process; start it without a launcher");
  const int ranks = number_flag(invocation, "ranks", 1, kMaxBenchRanks, job.size);
  RT_CHECK_AS(UsageError, ranks == job.size, "--ranks ", ranks, ": this job has ", job.size, " ranks");
  check_settings(settings, job.size);
  const auto t = comm::make_transport(transport, job.context(settings.timeout), device_for(transport, job.local_rank));
  std::optional<Report> report;
  if (job.rank == 0) report.emplace(settings, std::string(t->name()), job.size);
  time_collectives(*t, settings, [&](const CollectiveRow& row) { report->row(row); });
  return report ? report->finish(invocation.flag("json"), invocation.flag("baseline")) : 0;
}

int run_bench_collectives(const Invocation& invocation) {
  const CollectiveSettings settings = settings_of(invocation);
  const std::string* const given = invocation.flag("transport");
  const comm::Seconds join_timeout(number_flag(invocation, "join-timeout", 0.001, 1e8, 300.0));
  if (const auto job = comm::job_from_environment(join_timeout)) {
    try {
      return run_in(*job, given ? *given : "auto", settings, invocation);
    } catch (const std::exception& e) {  // the other ranks end with the same message
      job->failure->raise(concat("rank ", job->rank, " on ", job->host, ": ", e.what()));
      throw;
    }
  }
  const std::string transport = given ? *given : "threads";
  const int ranks = number_flag(invocation, "ranks", 1, kMaxBenchRanks, 2);
  check_settings(settings, ranks);
  std::vector<std::string> known = transport_names();
  known.emplace_back("simulated");
  check_known("transport", transport, known);
  RT_CHECK_AS(UsageError, !settings.limit || transport != "simulated",
              "--limit: a simulated network has no memory to measure");
  if (transport != "simulated") (void)device_for(transport, 0);  // reports errors once, before the ranks start
  if (!in_one_process(transport))
    return run_as_processes(ranks, {invocation.command_line.begin() + 1, invocation.command_line.end()});
  Report report(settings, transport, ranks);
  const RowFn row = [&](const CollectiveRow& r) { report.row(r); };
  if (transport == "simulated") simulate_collectives(ranks, topology_of(invocation), settings, row);
  else run_on_threads(ranks, transport, [&](comm::Transport& t) { time_collectives(t, settings, row); });
  return report.finish(invocation.flag("json"), invocation.flag("baseline"));
}

}  // namespace

Command bench_collectives_command() {
  const CollectiveSettings defaults;
  Command command;
  command.name = "bench collectives";
  command.summary = "Measures collectives between ranks of this machine and prints the columns of nccl-tests.";
  command.usage = "[FLAGS]";
  command.meets = true;
  command.examples = {"bench collectives --ranks 4 --check",
                      "bench collectives --op all_gather -b 1K -e 1M -f 2 --json before.json"};
  const std::string group = "Benchmark";
  command.flags = {
      {group, "op", "NAME",
       "collective: all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all or barrier",
       "all_reduce"},
      {group, "transport", "NAME",
       "transport: simulated, auto (between CPUs), or one of `ringtape list transports`, which says where the data is: "
       "CPU or GPU; starts processes for those between processes unless a launcher has",
       "threads"},
      {group, "algorithm", "NAME", "algorithm of the collective, or auto", "auto"},
      {group, "ranks", "N", "number of ranks", "2"},
      {group, "b", "BYTES", "smallest size, as in 16K, 64M or 1G", "16K"},
      {group, "e", "BYTES", "largest size, as in 16K, 64M or 1G", "64M"},
      {group, "f", "N", "factor from one size to the next", text(defaults.factor)},
      {group, "dtype", "TYPE", "type of the elements", std::string(name_of(defaults.dtype))},
      {group, "redop", "NAME", "reduction: sum, avg, max, min or product", "sum"},
      {group, "warmup", "N", "calls before the measured ones", text(defaults.warmup)},
      {group, "iterations", "N", "measured calls; the time is their mean", text(defaults.iterations)},
      {group, "limit", "",
       "two more columns for all_reduce in place: the least time that the measured memory bandwidth permits, and its "
       "ratio to the time taken",
       ""},
      {group, "timeout", "SECONDS", "maximum time of a call; then the error names the missing rank",
       text(defaults.timeout.count())},
      {group, "join-timeout", "SECONDS", "maximum time until all ranks of a job have started", "300"},
      {group, "check", "", "check every element of the results; exit code 1 if one is wrong", ""},
      {group, "json", "FILE", "also write the results to this file", ""},
      {group, "baseline", "FILE", "file of an earlier --json: exit code 1 if a bus bandwidth is below 90 % of it", ""},
      {"Simulated network", "latency", "US", "latency of a message, in microseconds", text(kLatency)},
      {"Simulated network", "bandwidth", "GB/S", "bandwidth of a rank's port in each direction", text(kBandwidth)},
      {"Simulated network", "island", "N",
       "ranks per island; within an island, a tenth of --latency and ten times --bandwidth", "none"},
  };
  command.run = run_bench_collectives;
  return command;
}

}  // namespace ringtape::cli
