#include "comm/choice.h"

#include <bit>
#include <limits>

#include "comm/algorithm/algorithms.h"
#include "comm/transport/gpu.h"
#include "core/parse.h"
#include "core/registry.h"

namespace ringtape::comm {

namespace {

constexpr size_t kAny = std::numeric_limits<size_t>::max();
// Shared memory; several islands (machines); one machine with several ranks; 2^k > 2 ranks; more than two ranks.
enum class Where : uint8_t { shared, islands, machine, power_of_two, several, anywhere };

struct Row {
  Collective kind;
  Where where;
  size_t bytes, bytes_per_rank;  // maxima
  const Algorithm* algorithm;
};

// A step costs alpha, a byte beta. All-reduce of S bytes: doubling takes log2 n (alpha + S beta), halving_doubling 2
// log2 n alpha + 2 S beta, ring 2 (n - 1) alpha + 2 S beta, double_tree 2 log2 n alpha + 2 S beta plus the cost of
// chunks. On loopback, InfiniBand and NVLink alpha / beta is between 45 and 600 KB. The limits of the table follow from
// this, by simulation where there is no formula (`bench collectives --transport simulated`). A ring comes within a
// tenth of halving_doubling if its parts have about the size of alpha / beta, and sends only between neighbours. If n
// is not 2^k, halving_doubling sends 4 S, and double_tree is faster. In shared memory a message costs two copies, and
// direct needs none. Over sockets within a machine double_tree was the fastest from 4 MiB on (docs/performance.md).
// docs/comm.md shows steps, bytes and this table.
constexpr Row kTable[] = {
    {Collective::all_reduce, Where::shared, kAny, kAny, &direct},
    {Collective::all_reduce, Where::anywhere, 64 << 10, kAny, &doubling},
    {Collective::all_reduce, Where::islands, kAny, kAny, &two_level},
    {Collective::all_reduce, Where::power_of_two, kAny, 256 << 10, &halving_doubling},
    {Collective::all_reduce, Where::several, kAny, 48 << 10, &double_tree},
    {Collective::all_reduce, Where::machine, 1 << 20, kAny, &ring},
    {Collective::all_reduce, Where::machine, kAny, kAny, &double_tree},
    {Collective::all_reduce, Where::anywhere, kAny, kAny, &ring},
    {Collective::reduce_scatter, Where::shared, kAny, kAny, &direct},
    {Collective::reduce_scatter, Where::power_of_two, kAny, 256 << 10, &halving_doubling},
    {Collective::reduce_scatter, Where::several, kAny, 8 << 10, &halving_doubling},
    {Collective::reduce_scatter, Where::anywhere, kAny, kAny, &ring},
    {Collective::all_gather, Where::shared, kAny, kAny, &direct},
    {Collective::all_gather, Where::anywhere, 64 << 10, kAny, &doubling},
    {Collective::all_gather, Where::power_of_two, kAny, 256 << 10, &halving_doubling},
    {Collective::all_gather, Where::anywhere, kAny, kAny, &ring},
    {Collective::broadcast, Where::shared, kAny, kAny, &direct},
    {Collective::broadcast, Where::anywhere, 8 << 10, kAny, &tree},
    {Collective::broadcast, Where::several, kAny, 128 << 10, &double_tree},
    {Collective::broadcast, Where::anywhere, kAny, kAny, &ring},
    {Collective::reduce, Where::shared, kAny, kAny, &direct},
    {Collective::reduce, Where::anywhere, 8 << 10, kAny, &tree},
    {Collective::reduce, Where::several, kAny, 128 << 10, &double_tree},
    {Collective::reduce, Where::anywhere, kAny, kAny, &ring},
    {Collective::gather, Where::shared, kAny, kAny, &direct},
    {Collective::gather, Where::anywhere, kAny, kAny, &tree},
    {Collective::scatter, Where::shared, kAny, kAny, &direct},
    {Collective::scatter, Where::anywhere, kAny, kAny, &tree},
    {Collective::all_to_all, Where::shared, kAny, kAny, &direct},
    {Collective::all_to_all, Where::anywhere, kAny, kAny, &pairwise},
    {Collective::barrier, Where::shared, kAny, kAny, &direct},
    {Collective::barrier, Where::anywhere, kAny, kAny, &doubling},
};

bool sums(Collective kind) {
  return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce;
}

bool offers(const Algorithm* algorithm, Collective kind) { return algorithm && algorithm->of(kind); }

constexpr std::string_view kExample = "; expected algorithms and ranges of bytes, as in ring:0-64K;direct:64K-";

size_t bytes_in(std::string_view text, std::string_view all) {
  const auto bytes = parse_bytes(text);
  RT_CHECK_AS(UsageError, bytes, "RINGTAPE_ALLREDUCE=", all, ": '", text, "' is not a number of bytes", kExample);
  return *bytes;
}

}  // namespace

Choice::Choice(Transport::Abilities transport, int ranks, int island, std::string_view all_reduce)
    : transport_(transport), ranks_(ranks), island_(island), all_reduce_(parse(all_reduce)) {}

std::vector<Choice::Range> Choice::parse(std::string_view text) {
  std::vector<const Algorithm*> known(algorithms().begin(), algorithms().end());
  std::erase_if(known, [](const Algorithm* a) { return !a->all_reduce; });
  const std::string origin = concat("RINGTAPE_ALLREDUCE=", text, ": ");
  std::vector<Range> ranges;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t colon = std::min(item.find(':'), item.size());
    Range range{&find_entry(known, item.substr(0, colon), "algorithm of all_reduce", origin), 0, kAny};
    if (colon < item.size()) {
      const std::string_view bytes = item.substr(colon + 1);
      const size_t dash = bytes.find('-');
      RT_CHECK_AS(UsageError, dash != bytes.npos, origin, "'", bytes, "' is not a range of bytes", kExample);
      range.from = bytes_in(bytes.substr(0, dash), text);
      if (dash + 1 < bytes.size()) range.to = bytes_in(bytes.substr(dash + 1), text);
      RT_CHECK_AS(UsageError, range.from < range.to, origin, "the range '", bytes, "' is empty", kExample);
    }
    ranges.push_back(range);
  }
  return ranges;
}

const Algorithm& Choice::operator()(const Operation& operation, bool deterministic) const {
  if (deterministic && sums(operation.kind)) return transport_.shares_memory ? direct : fixed_order;
  const Collective kind = operation.kind;
  const bool parts = kind != Collective::all_reduce && kind != Collective::broadcast && kind != Collective::reduce;
  const size_t bytes = operation.bytes() * (parts ? size_t(ranks_) : 1);
  if (operation.kind == Collective::all_reduce)
    for (const Range& range : all_reduce_)
      if (bytes >= range.from && bytes < range.to) return *range.algorithm;
  if (transport_.has_collectives && offers(nccl_algorithm, operation.kind)) return *nccl_algorithm;
  const auto here = [&](Where where) {
    switch (where) {
      case Where::shared: return transport_.shares_memory;
      case Where::islands: return island_ > 1 && island_ < ranks_;
      case Where::machine: return island_ > 1 && island_ == ranks_;
      case Where::power_of_two: return ranks_ > 2 && std::has_single_bit(unsigned(ranks_));
      case Where::several: return ranks_ > 2;
      default: return true;
    }
  };
  for (const Row& row : kTable)
    if (row.kind == kind && here(row.where) && bytes <= row.bytes && bytes / size_t(ranks_) <= row.bytes_per_rank)
      return *row.algorithm;
  RT_CHECK(false, "no algorithm for ", operation);
}

}  // namespace ringtape::comm
