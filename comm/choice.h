#pragma once
#include "comm/algorithm.h"

namespace ringtape::comm {

// Chooses the algorithm of an operation: the first row of a table that matches its collective, the bytes of its larger
// buffer, the number of ranks and the transport. Every rank of a group chooses the same.
class Choice {
 public:
  // `all_reduce` takes precedence over the table. It has the format of RINGTAPE_ALLREDUCE: "ring:0-64K;direct:64K-"
  // gives algorithms for ranges of bytes, from the first number to below the second; a name without a range is for all
  // sizes. Throws UsageError if it makes no sense.
  Choice(Transport::Abilities transport, int ranks, int island, std::string_view all_reduce = {});

  // Deterministic: sums are made in the order of the ranks, over any transport.
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
