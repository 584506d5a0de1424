#include "comm/process_group.h"

#include <algorithm>
#include <array>

#include "comm/choice.h"
#include "comm/work.h"
#include "core/env.h"
#include "core/recording.h"

namespace ringtape::comm {

struct ProcessGroup::Impl {
  explicit Impl(std::unique_ptr<Transport> t)
      : transport(std::move(t)), choice(transport->abilities(), transport->size(), transport->context().island,
                                        transport->size() > 1 ? env::all_reduce() : ""),
        worker(*transport) {}

  Work run(Operation op, const Tensor& x, const Tensor& y, const Cuts& cuts = {});
  Work run(Operation op, CollectiveFn f, const void* from, void* to, const Tensor& x = {}, const Tensor& y = {},
           const Cuts& cuts = {});

  const std::unique_ptr<Transport> transport;
  const Choice choice;
  bool deterministic = false;
  uint64_t sequence = 0;
  int splits = 0;
  Worker worker;  // destroyed first
};

Work ProcessGroup::Impl::run(Operation op, const Tensor& x, const Tensor& y, const Cuts& cuts) {
  const Algorithm& algorithm = choice(op, deterministic);
  op.algorithm = algorithm.id();
  if (y.defined()) y.storage()->written_by(name_of(op.kind).data());
  return run(op, algorithm.of(op.kind), View(x).data, View(y).data, x, y, cuts);
}

Work ProcessGroup::Impl::run(Operation op, CollectiveFn f, const void* from, void* to, const Tensor& x, const Tensor& y,
                             const Cuts& cuts) {
  if (const Recording* recording = Recording::current()) {
    RT_CHECK_AS(DeviceError, recording->device() == transport->device(), op, " of ranks on ", transport->device(),
                " cannot be part of a recorded graph on ", recording->device());
    return Work::State::recorded([=, this] { return run(op, f, from, to, x, y, cuts); });
  }
  transport->context().failure->check();
  op.sequence = ++sequence;
  auto work = std::make_shared<Work::State>();
  work->operation = op;
  work->run = f;
  work->x = x;
  work->y = y;
  work->from = from, work->to = to;
  work->cuts = cuts;
  work->worker = &worker;
  work->asked = transport->asked();
  worker.add(work);
  return Work(std::move(work));
}

namespace {

// Checks an argument of a call before anything is sent: `parts` times `count` elements of `dtype`.
void check(const Transport& t, Collective kind, const char* name, const Tensor& x, DType dtype, int64_t count,
           int parts = 1) {
  RT_CHECK_AS(ShapeError, x.defined(), kind, ": ", name, " is undefined on rank ", t.rank());
  const bool there =
      x.device() == t.device() || (x.device().type == DeviceType::cpu && t.device().type == DeviceType::cpu);
  RT_CHECK_AS(DeviceError, there, kind, ": ", name, " is on ", x.device(), ", the group on ", t.device(),
              "; move it with to(x, device)");
  RT_CHECK_AS(DTypeError, x.dtype() == dtype, kind, ": ", name, " is ", x.dtype(), ", the other operand ", dtype,
              "; convert one with cast(x, dtype)");
  RT_CHECK_AS(ShapeError, x.contiguous(), kind, ": ", name, " has shape ", x.shape(), " and strides ", x.strides(),
              "; it must be contiguous");
  RT_CHECK_AS(ShapeError, x.size() == count * parts, kind, ": ", name, " has ", x.size(), " elements, expected ",
              count * parts, parts > 1 ? concat(", ", parts, " times ", count) : "");
}

// x and y must not share memory, except as the operation allows in place: the one with a single part is part `rank` of
// the other.
void check_overlap(const Transport& t, Collective kind, const Tensor& x, const Tensor& y) {
  const auto* const a = static_cast<const char*>(View(x).data);
  const auto* const b = static_cast<const char*>(View(y).data);
  const int64_t na = x.size() * int64_t(size_of(x.dtype())), nb = y.size() * int64_t(size_of(y.dtype()));
  if (na == 0 || nb == 0 || uintptr_t(a) + size_t(na) <= uintptr_t(b) || uintptr_t(b) + size_t(nb) <= uintptr_t(a))
    return;
  const bool in_place = na > nb ? b == a + nb * t.rank() : na < nb ? a == b + na * t.rank() : a == b;
  RT_CHECK_AS(ShapeError, in_place, kind, ": x and y overlap; in place, the smaller one is part ", t.rank(),
              " of the larger");
}

void check_sum(Collective kind, DType dtype) {
  RT_CHECK_AS(DTypeError, dtype != DType::b8, kind, ": booleans have no sum; convert them with cast(x, dtype)");
}

void check_root(const Transport& t, Collective kind, int root) {
  RT_CHECK_AS(UsageError, root >= 0 && root < t.size(), kind, ": root ", root, " in a group of ", t.size(), " ranks");
}

// The operation on a whole buffer with cuts, after they have been checked.
Operation cut_operation(const Transport& t, Collective kind, const Tensor& all, const ProcessGroup::Cuts& cuts) {
  check(t, kind, "all", all, all.dtype(), all.size());
  const auto expected = concat("expected ", t.size() + 1, " that ascend from 0 to ", all.size());
  RT_CHECK_AS(ShapeError, cuts && cuts->size() == size_t(t.size()) + 1, kind, ": ", cuts ? cuts->size() : 0, " cuts, ",
              expected);
  RT_CHECK_AS(ShapeError,
              cuts->front() == 0 && cuts->back() == all.size() && std::is_sorted(cuts->begin(), cuts->end()), kind,
              ": wrong cuts, ", expected);
  std::vector<uint64_t> fields(cuts->begin(), cuts->end());
  Operation out{.kind = kind, .dtype = all.dtype(), .cuts = hash_of(fields) | 1};
  for (size_t r = 0; r + 1 < cuts->size(); ++r) out.count = std::max(out.count, (*cuts)[r + 1] - (*cuts)[r]);
  return out;
}

Tensor part_of(const Tensor& all, const std::vector<int64_t>& cuts, int rank) {
  const int64_t begin = cuts[size_t(rank)], end = cuts[size_t(rank) + 1];
  return all.window({end - begin}, {1}, begin);
}

// The number of elements of a part, if x consists of `parts` parts.
int64_t part_size(const Transport& t, Collective kind, const char* name, const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.defined(), kind, ": ", name, " is undefined on rank ", t.rank());
  RT_CHECK_AS(ShapeError, x.size() % t.size() == 0, kind, ": ", name, " has ", x.size(), " elements, which are not ",
              t.size(), " equal parts");
  return x.size() / t.size();
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Transport> transport)
    : impl_(std::make_unique<Impl>(std::move(transport))) {}
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const { return impl_->transport->rank(); }
int ProcessGroup::size() const { return impl_->transport->size(); }
const Transport& ProcessGroup::transport() const { return *impl_->transport; }
void ProcessGroup::set_deterministic(bool on) { impl_->deterministic = on; }

Work ProcessGroup::all_reduce(const Tensor& y, ReduceOp op) { return all_reduce(y, y, op); }

Work ProcessGroup::all_reduce(const Tensor& y, const Tensor& x, ReduceOp op) {
  constexpr Collective kind = Collective::all_reduce;
  check(transport(), kind, "y", y, y.dtype(), y.size());
  check(transport(), kind, "x", x, y.dtype(), y.size());
  check_overlap(transport(), kind, x, y);
  check_sum(kind, y.dtype());
  return impl_->run({.kind = kind, .dtype = y.dtype(), .op = op, .count = y.size()}, x, y);
}

Work ProcessGroup::reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op) {
  constexpr Collective kind = Collective::reduce_scatter;
  check(transport(), kind, "y", y, y.dtype(), y.size());
  check(transport(), kind, "x", x, y.dtype(), y.size(), size());
  check_overlap(transport(), kind, x, y);
  check_sum(kind, y.dtype());
  return impl_->run({.kind = kind, .dtype = y.dtype(), .op = op, .count = y.size()}, x, y);
}

Work ProcessGroup::all_gather(const Tensor& y, const Tensor& x) {
  constexpr Collective kind = Collective::all_gather;
  check(transport(), kind, "x", x, x.dtype(), x.size());
  check(transport(), kind, "y", y, x.dtype(), x.size(), size());
  check_overlap(transport(), kind, x, y);
  return impl_->run({.kind = kind, .dtype = x.dtype(), .count = x.size()}, x, y);
}

Work ProcessGroup::reduce_scatter(const Tensor& all, const Cuts& cuts, ReduceOp op) {
  Operation operation = cut_operation(transport(), Collective::reduce_scatter, all, cuts);
  operation.op = op;
  check_sum(operation.kind, all.dtype());
  return impl_->run(operation, all, part_of(all, *cuts, rank()), cuts);
}

Work ProcessGroup::all_gather(const Tensor& all, const Cuts& cuts, uint64_t label) {
  Operation operation = cut_operation(transport(), Collective::all_gather, all, cuts);
  if (label) operation.cuts = hash_of(std::array{operation.cuts, label}) | 1;
  return impl_->run(operation, part_of(all, *cuts, rank()), all, cuts);
}

Work ProcessGroup::broadcast(const Tensor& y, int root) {
  constexpr Collective kind = Collective::broadcast;
  check_root(transport(), kind, root);
  check(transport(), kind, "y", y, y.dtype(), y.size());
  return impl_->run({.kind = kind, .dtype = y.dtype(), .root = root, .count = y.size()}, {}, y);
}

Work ProcessGroup::reduce(const Tensor& y, const Tensor& x, int root, ReduceOp op) {
  constexpr Collective kind = Collective::reduce;
  check_root(transport(), kind, root);
  check(transport(), kind, "x", x, x.dtype(), x.size());
  check_sum(kind, x.dtype());
  if (rank() == root) {
    check(transport(), kind, "y", y, x.dtype(), x.size());
    check_overlap(transport(), kind, x, y);
  }
  return impl_->run({.kind = kind, .dtype = x.dtype(), .op = op, .root = root, .count = x.size()}, x,
                    rank() == root ? y : Tensor());
}

Work ProcessGroup::gather(const Tensor& y, const Tensor& x, int root) {
  constexpr Collective kind = Collective::gather;
  check_root(transport(), kind, root);
  check(transport(), kind, "x", x, x.dtype(), x.size());
  if (rank() == root) {
    check(transport(), kind, "y", y, x.dtype(), x.size(), size());
    check_overlap(transport(), kind, x, y);
  }
  return impl_->run({.kind = kind, .dtype = x.dtype(), .root = root, .count = x.size()}, x,
                    rank() == root ? y : Tensor());
}

Work ProcessGroup::scatter(const Tensor& y, const Tensor& x, int root) {
  constexpr Collective kind = Collective::scatter;
  check_root(transport(), kind, root);
  check(transport(), kind, "y", y, y.dtype(), y.size());
  if (rank() == root) {
    check(transport(), kind, "x", x, y.dtype(), y.size(), size());
    check_overlap(transport(), kind, x, y);
  }
  return impl_->run({.kind = kind, .dtype = y.dtype(), .root = root, .count = y.size()}, rank() == root ? x : Tensor(),
                    y);
}

Work ProcessGroup::all_to_all(const Tensor& y, const Tensor& x) {
  constexpr Collective kind = Collective::all_to_all;
  const int64_t count = part_size(transport(), kind, "x", x);
  check(transport(), kind, "x", x, x.dtype(), count, size());
  check(transport(), kind, "y", y, x.dtype(), count, size());
  check_overlap(transport(), kind, x, y);
  return impl_->run({.kind = kind, .dtype = x.dtype(), .count = count}, x, y);
}

Work ProcessGroup::barrier() { return impl_->run({.kind = Collective::barrier}, {}, {}); }

Tensor ProcessGroup::allocate(const Shape& shape, DType dtype) {
  const size_t bytes = size_t(shape.size()) * size_of(dtype);
  return Tensor(std::make_shared<Storage>(impl_->transport->allocate(bytes), bytes, impl_->transport->device()), shape,
                dtype);
}

Tensor ProcessGroup::allocate_common(const Shape& shape, DType dtype) {
  const size_t bytes = size_t(shape.size()) * size_of(dtype);
  std::shared_ptr<void> memory;
  const Operation op{.kind = Collective::broadcast, .dtype = dtype, .count = shape.size()};
  impl_
      ->run(
          op,
          [](Transport& t, const void*, void* to) {
            *static_cast<std::shared_ptr<void>*>(to) = t.allocate_common(t.operation().bytes());
          },
          nullptr, &memory)
      .wait();
  RT_CHECK_AS(UsageError, memory, transport().name(), ": its ranks have no memory in common; use shm");
  return Tensor(std::make_shared<Storage>(std::move(memory), bytes, transport().device()), shape, dtype);
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key) {
  const Transport& t = transport();
  const Tensor mine = from_host(std::vector<int64_t>{color, key}, {2}, t.device());
  const Tensor all({2 * size()}, DType::i64, t.device());
  all_gather(all, mine).wait();
  const Tensor host = all.copy_to(Device{});
  const auto wishes = host.span<int64_t>();

  std::vector<std::pair<int64_t, int>> members;  // key and rank
  for (int r = 0; r < size(); ++r)
    if (wishes[2 * size_t(r)] == color) members.emplace_back(wishes[2 * size_t(r) + 1], r);
  std::sort(members.begin(), members.end());
  const auto place = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.second == rank(); });

  Context context = t.context();
  context.rank = int(place - members.begin());
  context.size = int(members.size());
  context.store = prefix_store(t.context().store, concat("split.", ++impl_->splits, ".", color));
  // Islands remain if each of them has equally many consecutive members.
  const auto same_island = [&](int a, int b) {
    return members[size_t(a)].second / t.context().island == members[size_t(b)].second / t.context().island;
  };
  int island = 1;
  while (island < context.size && same_island(0, island)) ++island;
  bool whole = context.size % island == 0;
  for (int i = 1; whole && i < context.size; ++i) whole = same_island(i - 1, i) == (i % island != 0);
  context.island = whole ? island : 1;
  return std::make_unique<ProcessGroup>(t.open(std::move(context)));
}

}  // namespace ringtape::comm
