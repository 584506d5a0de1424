#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/halving_doubling.h"
#include "comm/algorithm/ring.h"

namespace ringtape::comm {

// Sums each part over the ranks of an island, then with the same part of the other islands, and gathers the parts
// within the island. Data leaves an island only once, sent by all its ranks at the same time.
static void two_level_all_reduce(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const int g = t.context().island, r = t.rank(), n = t.size();
  RT_CHECK_AS(CommError, g >= 1 && n % g == 0, "two_level: ", n, " ranks are not islands of ", g);
  const Team inside(r / g * g, 1, g, r % g), between(r % g, g, n / g, r / g);
  const Part part = part_of(op.count, g, inside.member);
  void* const own = at(y, part.begin, size_of(op.dtype));
  ring_reduce_scatter(t, inside, x, own, op.count, between.size == 1 ? last_factor(t) : 1.0);
  halving_doubling_all_reduce(t, between, own, own, part.size(), last_factor(t));
  ring_all_gather(t, inside, y, op.count);
}

const Algorithm two_level = {
    .name = "two_level",
    .about = "islands of g: 2 (g - 1) steps inside, 2 log2 (n / g) between with 1 / g of the bytes from each rank",
    .all_reduce = two_level_all_reduce};

}  // namespace ringtape::comm
