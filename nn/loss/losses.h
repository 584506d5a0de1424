#pragma once
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// How a loss combines the parts of a batch on different ranks. Each rank weights its loss by its share of the rows
// before backward(), which sums over the ranks (comm/parallel/ops.h).
enum class OverRanks : uint8_t {
  local,     // a mean over rows that need no other ranks' rows
  gathers,   // all ranks' rows; ranks must have equal numbers of rows
  averages,  // statistics over all ranks' rows
  balances,  // shares of all ranks' rows, without gradient
};

// A loss, and how it combines ranks: the tests of losses iterate over these. Registered at the end of its file; it is
// listed nowhere else.
struct Loss {
  const char* name;
  OverRanks over_ranks;
  bool exact;  // the weighted losses of all ranks sum to that of one rank with all rows
  int views;   // number of inputs (n, D)
  Tensor (*call)(const Tensors& views, comm::ProcessGroup* group);  // with the usual options -> ()
};
std::span<const Loss> losses();  // sorted by name

struct RegisterLoss {
  explicit RegisterLoss(const Loss& loss);
};

Tensor some_rows(int64_t n,
                 const Tensor& like);  // fixed rows (n, D) of length 1, for arguments of `call` other than embeddings

}  // namespace ringtape::nn
