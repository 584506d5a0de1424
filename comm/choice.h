#pragma once
#include "comm/algorithm.h"

namespace ringtape::comm {

// Which algorithm does an operation: the first row of a table that fits its collective, the bytes of its larger buffer,
// the number of ranks and the transport. Every rank of a group comes to the same.
class Choice {
 public:
  // `all_reduce` goes before the table, as RINGTAPE_ALLREDUCE does: "ring:0-64K;direct:64K-" names
  // algorithms by ranges of bytes, from the first number to below the second; a name alone is for
  // all sizes. Throws UsageError where it says nothing sensible.
  Choice(Transport::Abilities transport, int ranks, int island, std::string_view all_reduce = {});

  // Deterministic: sums in the order of the ranks, whatever the transport.
  const Algorithm& operator()(const Operation& operation, bool deterministic) const;

 private:
  struct Range {
    const Algorithm* algorithm;
    size_t from, to;
  };
  static std::vector<Range> parse(std::string_view text);

  Transport::Abilities transport_;
  int ranks_, island_;
  std::vector<Range> all_reduce_;
};

}  // namespace ringtape::comm
