#pragma once
#include <span>

#include "core/tensor.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// How a loss makes one of the parts of a batch that ranks have. Each rank weighs its loss by its part of the rows before backward(), which
// sums over the ranks (comm/ops.h).
enum class OverRanks : uint8_t {
  local,     // a mean over rows, each of which is there with all it needs
  gathers,   // all ranks' rows; ranks must have equally many
  averages,  // statistics over all ranks' rows
  balances,  // shares of all ranks' rows, without gradient
};

// The losses, each with what it does over ranks: what their tests walk. A new one is its file and a row here (losses.cpp).
struct Loss {
  const char* name;
  OverRanks over_ranks;
  bool exact;  // the ranks' weighted losses add up to that of one rank with all rows
  int views;   // tensors (n, D) that it takes
  Tensor (*call)(const Tensors& views, comm::ProcessGroup* group);  // with the usual options -> ()
};
std::span<const Loss> losses();

}  // namespace ringtape::nn
