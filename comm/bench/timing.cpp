#include "comm/bench/timing.h"

#include "comm/bench/pattern.h"
#include "comm/choice.h"
#include "core/env.h"
#include "core/runtime.h"
#include "kernels/combine.h"

namespace ringtape::comm {

namespace {

// Whether each rank has its own part of the larger buffer.
bool in_parts(Collective kind) {
  using enum Collective;
  return kind == reduce_scatter || kind == all_gather || kind == gather || kind == scatter || kind == all_to_all;
}

class Bench {
 public:
  Bench(Transport& transport, const CollectiveSettings& settings)
      : t_(transport), s_(settings), choice_(t_.abilities(), t_.size(), t_.context().island, env::all_reduce()),
        largest_(std::max<size_t>(size_t(settings.most), 64)), x_(t_.allocate(largest_)), y_(t_.allocate(largest_)),
        number_(t_.allocate(sizeof(double))) {}

  CollectiveRow row(int64_t bytes) {
    operation_ = {.kind = s_.kind, .dtype = s_.dtype, .op = s_.op, .count = count_of(s_, bytes, t_.size())};
    CollectiveRow row;
    const Algorithm& algorithm = s_.algorithm == "auto" ? choice_(operation_, false) : find_algorithm(s_.algorithm);
    operation_.algorithm = algorithm.id();
    run_ = algorithm.of(s_.kind);
    row.count = operation_.count;
    row.algorithm = algorithm.name;
    row.bytes = operation_.count * int64_t(size_of(s_.dtype)) * (in_parts(s_.kind) ? t_.size() : 1);
    row.out_of_place = figures(row.bytes, places(x_.get(), y_.get(), false));
    row.in_place = figures(row.bytes, places(y_.get(), y_.get(), true));
    if (s_.limit) row.limit_us = 2.0 / 3 * 1e6 * seconds_of([&] { add_own(operation_.count); });
    return row;
  }

 private:
  struct Places {  // null if the operation has none
    char *x, *y;
  };

  // The addresses of input and output; `inside`: the smaller one is inside the other.
  Places places(void* x, void* y, bool inside) const {
    Places p{static_cast<char*>(x), static_cast<char*>(y)};
    const bool root = t_.rank() == operation_.root;
    const size_t own = inside ? size_t(t_.rank()) * operation_.bytes() : 0;
    switch (s_.kind) {
      case Collective::broadcast: p.x = p.y; break;
      case Collective::reduce: p.y = root ? p.y : nullptr; break;
      case Collective::all_gather: p.x += own; break;
      case Collective::reduce_scatter: p.y += own; break;
      case Collective::gather: root ? void(p.x += own) : void(p.y = nullptr); break;
      case Collective::scatter: root ? void(p.y += own) : void(p.x = nullptr); break;
      default: break;
    }
    return p;
  }

  Figures figures(int64_t bytes, const Places& p) {
    Figures out;
    if (s_.check) out.wrong = int64_t(over_ranks(double(wrong(p)), ReduceOp::sum));
    runtime(t_.device()).zero(x_.get(), largest_, t_.device().index);  // sums of zeros stay zero
    runtime(t_.device()).zero(y_.get(), largest_, t_.device().index);
    const double seconds = seconds_of([&] { once(p); });
    out.us = 1e6 * seconds;
    out.algbw = 1e-9 * double(bytes) / seconds;
    out.busbw = out.algbw * bus_factor(s_.kind, t_.size());
    return out;
  }

  void add_own(int64_t count) {
    const View y{y_.get(), s_.dtype, t_.device(), 1, {count}, {1}};
    combine(y, {{y_.get(), x_.get()}, 2}, ReduceOp::sum, 1);
  }

  // The time of a call of f: the mean of many calls, on the slowest rank.
  template <class F> double seconds_of(F&& f) {
    for (int64_t i = 0; i < s_.warmup; ++i) f();
    over_ranks(0, ReduceOp::max);  // so that all ranks begin together
    synchronize(t_.device());
    const auto begin = Clock::now();
    for (int64_t i = 0; i < s_.iterations; ++i) f();
    synchronize(t_.device());
    return over_ranks(Seconds(Clock::now() - begin).count() / double(s_.iterations), ReduceOp::max);
  }

  void once(const Places& p) {
    operation_.sequence = ++sequence_;
    t_.begin(operation_, Deadline(s_.timeout));
    run_(t_, p.x, p.y);
    t_.end();
  }

  int64_t wrong(const Places& p) {
    const int n = t_.size(), r = t_.rank();
    const Device device = t_.device();
    std::vector<char> host(size_t(std::max(input_elements(operation_, n, r), output_elements(operation_, n, r))) *
                           size_of(s_.dtype));
    fill_input(host.data(), operation_, n, r);
    if (p.x)
      runtime(device).copy(p.x, device, host.data(), {}, size_t(input_elements(operation_, n, r)) * size_of(s_.dtype));
    once(p);
    synchronize(device);
    if (p.y)
      runtime(device).copy(host.data(), {}, p.y, device, size_t(output_elements(operation_, n, r)) * size_of(s_.dtype));
    return count_wrong(host.data(), operation_, n, r);
  }

  // Combines one number of each rank; all ranks get the result. Also synchronises the ranks.
  double over_ranks(double value, ReduceOp op) {
    const Operation one{
        .kind = Collective::all_reduce, .dtype = DType::f64, .op = op, .count = 1, .sequence = ++sequence_};
    const Device device = t_.device();
    runtime(device).copy(number_.get(), device, &value, {}, sizeof value);
    t_.begin(one, Deadline(s_.timeout));
    find_algorithm("doubling").all_reduce(t_, number_.get(), number_.get());
    t_.end();
    synchronize(device);
    runtime(device).copy(&value, {}, number_.get(), device, sizeof value);
    return value;
  }

  Transport& t_;
  const CollectiveSettings& s_;
  const Choice choice_;
  const size_t largest_;
  const std::shared_ptr<void> x_, y_, number_;
  Operation operation_;
  CollectiveFn run_ = nullptr;
  uint64_t sequence_ = 0;
};

}  // namespace

double bus_factor(Collective kind, int n) {
  switch (kind) {
    case Collective::all_reduce: return 2.0 * (n - 1) / n;
    case Collective::broadcast:
    case Collective::reduce: return 1;
    default: return double(n - 1) / n;
  }
}

int64_t count_of(const CollectiveSettings& s, int64_t bytes, int ranks) {
  if (s.kind == Collective::barrier) return 0;
  return bytes / int64_t(size_of(s.dtype)) / (in_parts(s.kind) ? ranks : 1);
}

void check_settings(const CollectiveSettings& s, int ranks) {
  std::string able;
  for (const Algorithm* a : algorithms())
    if (a->of(s.kind)) able += concat(able.empty() ? "" : ", ", a->name);
  RT_CHECK_AS(UsageError, s.algorithm == "auto" || find_algorithm(s.algorithm).of(s.kind), "the algorithm ",
              s.algorithm, " does not support ", s.kind, "; these do: ", able);
  RT_CHECK_AS(UsageError, s.dtype != DType::b8, "--dtype b8: booleans cannot be summed; choose another");
  RT_CHECK_AS(UsageError, !s.limit || s.kind == Collective::all_reduce, "--limit: supports only all_reduce, not ",
              s.kind);
  const int64_t least = int64_t(size_of(s.dtype)) * (in_parts(s.kind) ? ranks : 1);
  RT_CHECK_AS(UsageError, s.least >= least, "-b ", s.least, ": expected at least ", least, " bytes, one ", s.dtype,
              in_parts(s.kind) ? " per rank" : "");
  RT_CHECK_AS(UsageError, s.most >= s.least, "-e ", s.most, ": expected at least -b, ", s.least);
}

void time_collectives(Transport& transport, const CollectiveSettings& s, const RowFn& report) {
  Bench bench(transport, s);
  for (int64_t bytes = s.least; bytes <= s.most; bytes *= s.factor) {
    const CollectiveRow row = bench.row(bytes);
    if (transport.rank() == 0) report(row);
    if (s.kind == Collective::barrier) break;
  }
}

}  // namespace ringtape::comm
