#include "comm/bench/simulation.h"

#include "comm/bench/pattern.h"
#include "comm/choice.h"
#include "comm/transport/simulated.h"
#include "core/env.h"

namespace ringtape::comm {

namespace {

// Runs the operation once, with two buffers per rank, or one if it is in place.
struct Once {
  const CollectiveSettings& settings;
  Operation operation;
  CollectiveFn run;
  bool in_place;
  int64_t wrong = 0;

  void on(Transport& t) {
    const int n = t.size(), r = t.rank();
    const size_t width = size_of(operation.dtype);
    const auto bytes = [&](int64_t elements) { return size_t(std::max<int64_t>(elements, 1)) * width; };
    const int64_t in = input_elements(operation, n, r), out = output_elements(operation, n, r);
    const auto x = t.allocate(bytes(in_place ? std::max(in, out) : in)), y = in_place ? x : t.allocate(bytes(out));
    const auto own = [&](int64_t small, int64_t large) {
      return in_place && small < large ? size_t(r) * operation.bytes() : 0;
    };
    char* const from = static_cast<char*>(x.get()) + own(in, out);
    char* const to = static_cast<char*>(y.get()) + own(out, in);
    if (settings.check) fill_input(operation.kind == Collective::broadcast ? to : from, operation, n, r);
    t.begin(operation, Deadline(Seconds(3600)));
    run(t, operation.kind == Collective::broadcast ? to : in > 0 ? from : nullptr, out > 0 ? to : nullptr);
    t.end();
    if (settings.check && out > 0) wrong += count_wrong(to, operation, n, r);
  }
};

}  // namespace

void simulate_collectives(int ranks, const Topology& topology, const CollectiveSettings& s, const RowFn& report) {
  const int island = topology.island < ranks && ranks % topology.island == 0 ? topology.island : 1;
  const Choice choice({}, ranks, island, env::all_reduce());
  for (int64_t bytes = s.least; bytes <= s.most; bytes *= s.factor) {
    Operation operation{
        .kind = s.kind, .dtype = s.dtype, .op = s.op, .count = count_of(s, bytes, ranks), .sequence = 1};
    const Algorithm& algorithm = s.algorithm == "auto" ? choice(operation, false) : find_algorithm(s.algorithm);
    CollectiveRow row{.bytes = bytes, .count = operation.count, .algorithm = algorithm.name};
    for (Figures* f : {&row.out_of_place, &row.in_place}) {
      if (!s.check && f == &row.in_place) {  // a copy takes no time
        row.in_place = row.out_of_place;
        break;
      }
      Once once{s, operation, algorithm.of(s.kind), f == &row.in_place};
      const double seconds =
          simulate(
              ranks, topology, [&](Transport& t) { once.on(t); }, s.check ? Payload::carried : Payload::counted)
              .seconds;
      *f = {1e6 * seconds, 1e-9 * double(bytes) / seconds, 1e-9 * double(bytes) / seconds * bus_factor(s.kind, ranks),
            s.check ? once.wrong : -1};
    }
    report(row);
    if (s.kind == Collective::barrier) break;
  }
}

}  // namespace ringtape::comm
