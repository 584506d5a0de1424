#include "autograd/ops/along.h"
#include "kernels/copy.h"

// Ops on shapes that are made of others.
namespace ringtape {

Tensor unsqueeze(const Tensor& x, int axis) {
  check_defined(x, "unsqueeze");
  const int at = normalize_axis(axis, x.rank() + 1, "unsqueeze");
  Shape shape;
  for (int i = 0; i <= x.rank(); ++i) shape.append(i == at ? 1 : x.shape()[i < at ? i : i - 1]);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x) {
  check_defined(x, "squeeze");
  Shape shape;
  for (const int64_t size : x.shape())
    if (size != 1) shape.append(size);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int axis) {
  check_defined(x, "squeeze");
  const int at = normalize_axis(axis, x.rank(), "squeeze");
  return x.shape()[at] == 1 ? reshape(x, x.shape().without(at)) : x;
}

Tensor movedim(const Tensor& x, int from, int to) {
  check_defined(x, "movedim");
  const int first = normalize_axis(from, x.rank(), "movedim"), last = normalize_axis(to, x.rank(), "movedim");
  std::vector<int> order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != first) order.push_back(i);
  order.insert(order.begin() + last, first);
  return permute(x, order);
}

Tensor stack(const Tensors& parts, int axis) {
  RT_CHECK_AS(ShapeError, !parts.empty(), "stack: no tensors given");
  Tensors rows;
  for (const Tensor& p : parts) {
    check_defined(p, "stack");
    RT_CHECK_AS(ShapeError, p.shape() == parts[0].shape(), "stack: shapes ", parts[0].shape(), " and ", p.shape(),
                " differ");
    if (autocast_dtype() == DType::f32) check_same(parts[0], p, "stack");
    rows.push_back(unsqueeze(p, normalize_axis(axis, p.rank() + 1, "stack")));
  }
  return concat(rows, normalize_axis(axis, rows[0].rank(), "stack"));
}

Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int axis) {
  check_defined(x, "split");
  const int at = normalize_axis(axis, x.rank(), "split");
  int64_t begin = 0;
  Tensors out;
  for (const int64_t size : sizes) {
    RT_CHECK_AS(ShapeError, size >= 0 && size <= x.shape()[at] - begin, "split: a part of ", size, " from ", begin,
                " on along axis ", at, " of shape ", x.shape());
    out.push_back(slice(x, at, begin, begin + size));
    begin += size;
  }
  RT_CHECK_AS(ShapeError, begin == x.shape()[at], "split: the sizes add up to ", begin, ", but axis ", at, " of shape ",
              x.shape(), " has ", x.shape()[at], " elements");
  return out;
}

// Parts of one size; the last may be smaller.
static Tensors equal_parts(const Tensor& x, int64_t size, int at) {
  std::vector<int64_t> sizes;
  for (int64_t left = x.shape()[at]; left > 0; left -= size) sizes.push_back(std::min(size, left));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, at);
}

Tensors split(const Tensor& x, int64_t size, int axis) {
  check_defined(x, "split");
  RT_CHECK_AS(ShapeError, size >= 1, "split: parts of ", size, " elements");
  return equal_parts(x, size, normalize_axis(axis, x.rank(), "split"));
}

Tensors chunk(const Tensor& x, int64_t count, int axis) {
  check_defined(x, "chunk");
  const int at = normalize_axis(axis, x.rank(), "chunk");
  RT_CHECK_AS(ShapeError, count >= 1, "chunk: ", count, " parts");
  const int64_t n = x.shape()[at];
  if (n == 0) return split(x, std::vector<int64_t>(size_t(count)), at);
  return equal_parts(x, (n - 1) / count + 1, at);
}

Tensor repeat(const Tensor& x, const Shape& counts) {
  check_defined(x, "repeat");
  const int lead = counts.rank() - x.rank();
  RT_CHECK_AS(ShapeError, lead >= 0, "repeat: ", counts, " for shape ", x.shape(), ": expected a number for each axis");
  // An axis that is repeated and has several elements gets a repeated one in front of it, and both become one.
  Shape seen, expanded, shape;
  int64_t total = 1;
  for (int i = 0; i < counts.rank(); ++i) {
    const int64_t size = i < lead ? 1 : x.shape()[i - lead], count = counts[i];
    RT_CHECK_AS(ShapeError, count >= 0, "repeat: ", counts, ": expected numbers of at least 0");
    int64_t length = 0;
    RT_CHECK_AS(ShapeError,
                !__builtin_mul_overflow(size, count, &length) &&
                    !__builtin_mul_overflow(total, std::max<int64_t>(length, 1), &total) && total <= INT64_MAX / 8,
                "repeat: ", counts, " of shape ", x.shape(), ": too many elements");
    const bool two = count != 1 && size != 1;
    RT_CHECK_AS(ShapeError, expanded.rank() + 1 + two <= kMaxRank, "repeat: ", counts, " of shape ", x.shape(),
                " needs more than ", kMaxRank, " axes; repeat along fewer axes at a time");
    if (two) seen.append(1), expanded.append(count);
    seen.append(size), expanded.append(two ? size : length);
    shape.append(length);
  }
  const Tensor y(shape, x.dtype(), x.device());
  copy(y.window(expanded, contiguous_strides(expanded)), expand(reshape(x.detach(), seen), expanded));
  return record("repeat", {x}, y, [own = x.shape(), seen, expanded](const Tensor& dy) -> Tensors {
    return {reshape(sum_to(reshape(dy, expanded), seen), own)};
  });
}

// Element 0 goes to `first`, in [0, n).
static Tensor rolled(const Tensor& x, int at, int64_t first) {
  const int64_t n = x.shape()[at];
  if (first == 0) {
    const Tensor y = empty_like(x);
    copy(y, x);
    return y;
  }
  return concat({slice(x, at, n - first, n), slice(x, at, 0, n - first)}, at);
}

Tensor roll(const Tensor& x, int64_t shift, int axis) {
  const int at = axis_of(x, axis, "roll");
  const int64_t n = std::max<int64_t>(size_along(x, at), 1), first = (shift % n + n) % n;
  return record("roll", {x}, rolled(x.detach(), at, first),
                [at, back = (n - first) % n](const Tensor& dy) -> Tensors { return {rolled(dy, at, back)}; });
}

static const RegisterOp register_unsqueeze{{
    .name = "unsqueeze",
    .samples = {{"front", {{{3, 5}}}, [](const Tensors& t) { return unsqueeze(t[0], 0); }},
                {"last", {{{3, 5}}}, [](const Tensors& t) { return unsqueeze(t[0], -1); }},
                {"scalar", {{{}}}, [](const Tensors& t) { return unsqueeze(t[0], 0); }},
                {"empty", {{{0, 5}}}, [](const Tensors& t) { return unsqueeze(t[0], 1); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return unsqueeze(t[0], 3); }}},
}};
static const RegisterOp register_squeeze{{
    .name = "squeeze",
    .samples = {{"all", {{{1, 3, 1, 5}}}, [](const Tensors& t) { return squeeze(t[0]); }},
                {"one", {{{3, 1, 1}}}, [](const Tensors& t) { return squeeze(t[0], -1); }},
                {"nothing", {{{3, 5}}}, [](const Tensors& t) { return squeeze(t[0], 1); }},
                {"empty", {{{0, 1}}}, [](const Tensors& t) { return squeeze(t[0]); }}},
    .invalid = {{"axis", {{{3, 1}}}, [](const Tensors& t) { return squeeze(t[0], 2); }}},
}};
static const RegisterOp register_movedim{{
    .name = "movedim",
    .samples = {{"to_last", {{{2, 3, 4}}}, [](const Tensors& t) { return movedim(t[0], 0, -1); }},
                {"to_front", {{{2, 3, 4, 5}}}, [](const Tensors& t) { return movedim(t[0], 2, 0); }},
                {"empty", {{{2, 0, 4}}}, [](const Tensors& t) { return movedim(t[0], 1, 2); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return movedim(t[0], 0, 2); }}},
}};
static const RegisterOp register_stack{{
    .name = "stack",
    .samples = {{"rows", {{{3, 5}}, {{3, 5}}}, [](const Tensors& t) { return stack(t); }},
                {"last", {{{3, 5}}, {{3, 5}}, {{3, 5}}}, [](const Tensors& t) { return stack(t, -1); }},
                {"scalars", {{{}}, {{}}}, [](const Tensors& t) { return stack(t); }},
                {"empty", {{{0, 5}}, {{0, 5}}}, [](const Tensors& t) { return stack(t, 1); }}},
    .workloads = {{"2x2048x4096", {{{2048, 4096}}, {{2048, 4096}}}, [](const Tensors& t) { return stack(t); }}},
    .invalid = {{"shapes", {{{3, 5}}, {{5}}}, [](const Tensors& t) { return stack(t); }},
                {"axis", {{{3}}, {{3}}}, [](const Tensors& t) { return stack(t, 2); }},
                {"none", {}, [](const Tensors& t) { return stack(t); }}},
}};
static const RegisterOp register_split{{
    .name = "split",
    .samples = {{"equal", {{{7, 3}}}, [](const Tensors& t) { return split(t[0], 3)[2]; }},
                {"sizes",
                 {{{3, 7}}},
                 [](const Tensors& t) {
                   return split(t[0], {2, 0, 5}, 1)[2];
                 }},
                {"both", {{{4, 3}}}, [](const Tensors& t) { return concat(split(t[0], 2), 1); }},
                {"empty", {{{0, 3}}}, [](const Tensors& t) { return split(t[0], 2)[0]; }}},
    .invalid = {{"sum",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return split(t[0], {1, 1})[0];
                 }},
                {"beyond",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return split(t[0], {2, 2})[0];
                 }},
                {"size", {{{3, 5}}}, [](const Tensors& t) { return split(t[0], 0)[0]; }}},
}};
static const RegisterOp register_chunk{{
    .name = "chunk",
    .samples = {{"thirds", {{{2, 9}}}, [](const Tensors& t) { return chunk(t[0], 3, -1)[1]; }},
                {"uneven", {{{7, 2}}}, [](const Tensors& t) { return chunk(t[0], 4)[3]; }},
                {"empty", {{{0, 3}}}, [](const Tensors& t) { return chunk(t[0], 2)[1]; }}},
    .invalid = {{"none", {{{3, 5}}}, [](const Tensors& t) { return chunk(t[0], 0)[0]; }}},
}};
static const RegisterOp register_repeat{{
    .name = "repeat",
    .samples = {{"rows",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, 1});
                 }},
                {"both",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, 3});
                 }},
                {"new_axis",
                 {{{3, 1}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, 1, 4});
                 }},
                {"none",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, 0});
                 }},
                {"empty",
                 {{{0, 5}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, 2});
                 }}},
    .workloads = {{"2x2_of_2048x2048",
                   {{{2048, 2048}}},
                   [](const Tensors& t) {
                     return repeat(t[0], {2, 2});
                   }}},
    .invalid = {{"rank", {{{3, 5}}}, [](const Tensors& t) { return repeat(t[0], {2}); }},
                {"negative",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return repeat(t[0], {2, -1});
                 }}},
}};
static const RegisterOp register_roll{{
    .name = "roll",
    .samples = {{"rows", {{{5, 3}}}, [](const Tensors& t) { return roll(t[0], 2, 0); }},
                {"back", {{{2, 7}}}, [](const Tensors& t) { return roll(t[0], -10, -1); }},
                {"whole", {{{2, 7}}}, [](const Tensors& t) { return roll(t[0], 7, 1); }},
                {"empty", {{{0, 7}}}, [](const Tensors& t) { return roll(t[0], 3, 0); }}},
    .workloads = {{"1_of_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return roll(t[0], 1, 1); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return roll(t[0], 1, 2); }}},
}};

}  // namespace ringtape
