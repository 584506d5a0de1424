#include "comm/parallel/shuffle.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/random.h"

namespace ringtape::comm {

namespace {

// The rows of all ranks, one rank after the other, and their permutation: the row at place i afterwards was at
// source[i] before.
struct Order {
  std::vector<int64_t> begin;  // first row of each rank; the last element is the total
  std::vector<int64_t> source;

  Order inverse() const {
    Order back{begin, source};
    for (size_t i = 0; i < source.size(); ++i) back.source[size_t(source[i])] = int64_t(i);
    return back;
  }
};

std::vector<int64_t> rows_of_all(ProcessGroup& group, const Tensor& x) {
  const Tensor all({group.size()}, DType::i64, x.device());
  group.all_gather(all, from_host(std::vector<int64_t>{x.dim(0)}, {1}, x.device())).wait();
  const Tensor here = to(all, Device{});
  const auto counts = here.span<int64_t>();
  return {counts.begin(), counts.end()};
}

Order random_order(ProcessGroup& group, const char* op, const Tensor& x, uint64_t seed, std::vector<int64_t> rows) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() > 0, op, ": expected x (N, ...), got ",
              x.defined() ? x.shape().str() : "none");
  if (rows.empty()) rows = rows_of_all(group, x);
  RT_CHECK_AS(ShapeError, int(rows.size()) == group.size(), op, ": the rows of ", rows.size(), " ranks in a group of ",
              group.size());
  const int64_t own = rows[size_t(group.rank())];
  RT_CHECK_AS(ShapeError, own == x.dim(0), op, ": expected ", own, " rows on rank ", group.rank(), ", got x ",
              x.shape());
  Order order{{0}, {}};
  for (const int64_t n : rows) order.begin.push_back(order.begin.back() + n);
  order.source = permutation(order.begin.back(), seed, Stream::rows, 0);
  return order;
}

// The rows that this rank sends, and the places of the rows that it receives: one part per rank, all with `longest`
// rows.
struct Exchange {
  std::vector<int64_t> sent, taken;
};

Exchange exchange_of(const Order& order, int rank, int size) {
  std::vector<std::vector<int64_t>> to(static_cast<size_t>(size));  // this rank's rows for each rank
  std::vector<int64_t> moving(static_cast<size_t>(size * size));    // number of rows from each rank to each rank
  std::vector<std::pair<int64_t, int64_t>> from;  // for each row here: the rank, and the index among that rank's rows
  for (int target = 0; target < size; ++target)
    for (int64_t i = order.begin[size_t(target)]; i < order.begin[size_t(target) + 1]; ++i) {
      const int64_t row = order.source[size_t(i)];
      const auto owner = std::upper_bound(order.begin.begin(), order.begin.end(), row) - order.begin.begin() - 1;
      int64_t& number = moving[size_t(owner * size + target)];
      if (owner == rank) to[size_t(target)].push_back(row - order.begin[size_t(rank)]);
      if (target == rank) from.emplace_back(owner, number);
      ++number;
    }
  const int64_t longest = *std::max_element(moving.begin(), moving.end());
  Exchange e;
  for (std::vector<int64_t>& rows : to) {
    rows.resize(size_t(longest));  // padded with row 0
    e.sent.insert(e.sent.end(), rows.begin(), rows.end());
  }
  for (const auto& [owner, number] : from) e.taken.push_back(owner * longest + number);
  return e;
}

Tensor reordered(ProcessGroup& group, const Tensor& x, const Order& order) {
  const Exchange e = exchange_of(order, group.rank(), group.size());
  const auto select = [](const Tensor& rows, const std::vector<int64_t>& index) {
    return index_select(rows, 0, from_host(index, {int64_t(index.size())}, rows.device()));
  };
  const Tensor sent = x.dim(0) > 0 ? select(x.detach(), e.sent)
                                   : zeros(x.shape().with(0, int64_t(e.sent.size())), x.dtype(), x.device());
  const Tensor arrived = empty_like(sent);
  group.all_to_all(arrived, sent).wait();
  return select(arrived, e.taken);
}

Tensor recorded(const char* name, ProcessGroup& group, const Tensor& x, const Order& order) {
  return record(name, {x}, reordered(group, x, order),
                [&group, back = order.inverse()](const Tensor& dy) -> Tensors { return {reordered(group, dy, back)}; });
}

}  // namespace

Tensor shuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows) {
  return recorded("shuffle", group, x, random_order(group, "shuffle", x, seed, rows));
}

Tensor unshuffle(ProcessGroup& group, const Tensor& x, uint64_t seed, const std::vector<int64_t>& rows) {
  return recorded("unshuffle", group, x, random_order(group, "unshuffle", x, seed, rows).inverse());
}

}  // namespace ringtape::comm
