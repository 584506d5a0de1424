#include "comm/parallel/data_parallel.h"

#include <map>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/part.h"
#include "kernels/binary.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

void check_devices(const char* op, const Devices& devices) {
  RT_CHECK_AS(UsageError, !devices.empty(), op, ": expected at least one device");
}

void check_alike(const char* op, const Tensor& a, const Tensor& b, bool same_rows) {
  RT_CHECK_AS(ShapeError, a.defined() && b.defined(), op, ": an undefined tensor");
  RT_CHECK_AS(DTypeError, a.dtype() == b.dtype(), op, ": tensors of ", a.dtype(), " and ", b.dtype(),
              "; convert one with cast(x, dtype)");
  const auto compared = [same_rows](const Shape& shape) {
    return same_rows || shape.rank() == 0 ? shape : shape.with(0, 0);
  };
  RT_CHECK_AS(ShapeError, compared(a.shape()) == compared(b.shape()), op, ": shapes ", a.shape(), " and ", b.shape(),
              " differ", same_rows ? "" : " outside axis 0");
}

// Without the graph; x itself if it is already on the device.
Tensor moved(const Tensor& x, Device device) { return to(contiguous(x.detach()), device); }

// x on one of the devices of a broadcast. Backward processes the latest record first, so records made in reverse order
// add up in order.
Tensor arrival(const Tensor& x, const Tensor& y) {
  return record("broadcast", {x}, y, [own = x.device()](const Tensor& dy) -> Tensors { return {to(dy, own)}; });
}

Tensor record_reduce_add(const Tensors& xs, const Tensor& y) {
  Devices devices;
  for (const Tensor& x : xs) devices.push_back(x.device());
  return record("reduce_add", xs, y, [devices](const Tensor& dy) -> Tensors {
    Tensors dx;
    for (const Device device : devices) dx.push_back(to(dy, device));
    return dx;
  });
}

// Tensors that are sent as one.
struct TensorPacket {
  std::vector<size_t> members;   // indices of the tensors
  std::vector<int64_t> offsets;  // in elements; aligned to cache lines
  int64_t size = 0;

  // Packs xs on their device, with zeros in the gaps.
  Tensor of(const Tensors& xs) const {
    const Tensor& first = xs[members[0]];
    const Tensor buffer = zeros({size}, first.dtype(), first.device());
    for (size_t i = 0; i < members.size(); ++i) copy(member(buffer, i, xs), xs[members[i]]);
    return buffer;
  }
  Tensor member(const Tensor& buffer, size_t i, const Tensors& like) const {
    const Shape& shape = like[members[i]].shape();
    return buffer.window(shape, contiguous_strides(shape), offsets[i]);
  }
};

std::vector<TensorPacket> packets(const char* op, const Tensors& xs, int64_t bytes) {
  std::vector<TensorPacket> all;
  std::map<DType, size_t> open;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Tensor& x = xs[i];
    RT_CHECK_AS(ShapeError, x.defined(), op, ": an undefined tensor");
    RT_CHECK_AS(DeviceError, x.device() == xs[0].device(), op, ": a list on ", xs[0].device(), " and ", x.device(),
                "; move one with to(x, device)");
    const auto width = int64_t(size_of(x.dtype())), line = 64 / width;
    const auto [at, fresh] = open.try_emplace(x.dtype(), all.size());
    if (fresh || (all[at->second].size + x.size()) * width > bytes) at->second = all.size(), all.emplace_back();
    TensorPacket& packet = all[at->second];
    packet.members.push_back(i), packet.offsets.push_back(packet.size);
    packet.size += (x.size() + line - 1) / line * line;
  }
  return all;
}

}  // namespace

Tensors scatter(const Tensor& x, const Devices& devices) {
  check_devices("scatter", devices);
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() > 0, "scatter: expected x (N, ...), got ",
              x.defined() ? x.shape().str() : "none");
  const auto k = int(devices.size());
  Tensors parts;
  for (int i = 0; i < k; ++i) {
    const Part rows = part_of(x.dim(0), k, i);
    parts.push_back(to(slice(x, 0, rows.begin, rows.end), devices[size_t(i)]));
  }
  return parts;
}

Tensor gather(const Tensors& parts, Device device) {
  RT_CHECK_AS(UsageError, !parts.empty(), "gather_parts: expected at least one part");
  Tensors there;
  for (const Tensor& x : parts) {
    check_alike("gather_parts", parts[0], x, false);
    there.push_back(to(x.rank() == 0 ? reshape(x, {1}) : x, device));
  }
  return concat(there);
}

Tensors broadcast(const Tensor& x, const Devices& devices) {
  check_devices("broadcast", devices);
  RT_CHECK_AS(ShapeError, x.defined(), "broadcast: an undefined tensor");
  Tensors ys(devices.size());
  for (size_t i = devices.size(); i-- > 0;) ys[i] = arrival(x, moved(x, devices[i]));
  return ys;
}

Tensor reduce_add(const Tensors& xs, Device device) {
  RT_CHECK_AS(UsageError, !xs.empty(), "reduce_add: expected at least one tensor");
  for (const Tensor& x : xs) check_alike("reduce_add", xs[0], x, true);
  Tensor y = moved(xs[0], device);
  for (size_t i = 1; i < xs.size(); ++i) {
    const Tensor sum = i == 1 ? empty_like(y) : y;  // the first may not be overwritten
    add_forward(sum, y, moved(xs[i], device));
    y = sum;
  }
  return record_reduce_add(xs, y);
}

std::vector<Tensors> broadcast_coalesced(const Tensors& xs, const Devices& devices, int64_t bytes) {
  check_devices("broadcast_coalesced", devices);
  std::vector<Tensors> lists(devices.size(), Tensors(xs.size()));
  for (const TensorPacket& packet : packets("broadcast_coalesced", xs, bytes)) {
    const bool alone = packet.members.size() == 1;
    Tensor buffer;  // on the source device; that device itself needs no packing
    for (size_t d = devices.size(); d-- > 0;) {
      const bool there = devices[d] == xs[0].device();
      if (!there && !alone && !buffer.defined()) buffer = packet.of(xs);
      const Tensor arrived = there || alone ? Tensor{} : moved(buffer, devices[d]);
      for (size_t i = 0; i < packet.members.size(); ++i) {
        const Tensor& x = xs[packet.members[i]];
        lists[d][packet.members[i]] =
            arrival(x, arrived.defined() ? packet.member(arrived, i, xs) : moved(x, devices[d]));
      }
    }
  }
  return lists;
}

Tensors reduce_add_coalesced(const std::vector<Tensors>& lists, Device device, int64_t bytes) {
  RT_CHECK_AS(UsageError, !lists.empty(), "reduce_add_coalesced: expected at least one list");
  for (const Tensors& list : lists) {
    RT_CHECK_AS(UsageError, list.size() == lists[0].size(), "reduce_add_coalesced: lists of ", lists[0].size(), " and ",
                list.size(), " tensors");
    for (size_t j = 0; j < list.size(); ++j) check_alike("reduce_add_coalesced", lists[0][j], list[j], true);
    packets("reduce_add_coalesced", list, bytes);
  }
  Tensors ys(lists[0].size());
  for (const TensorPacket& packet : packets("reduce_add_coalesced", lists[0], bytes)) {
    Tensor sum;
    for (const Tensors& list : lists) {
      const Tensor own = moved(packet.of(list), device);
      if (sum.defined()) add_forward(sum, sum, own);
      else sum = own;
    }
    for (size_t i = 0; i < packet.members.size(); ++i) {
      const size_t j = packet.members[i];
      Tensors all;
      for (const Tensors& list : lists) all.push_back(list[j]);
      ys[j] = record_reduce_add(all, packet.member(sum, i, lists[0]));
    }
  }
  return ys;
}

// Samples leave their first device and come back to it.
static Devices three(const Tensor& x) { return {x.device(), {DeviceType::cpu, 1}, {DeviceType::cpu, 2}}; }

static Tensor call_scatter(const Tensors& t) {
  Tensors parts = scatter(t[0], three(t[0]));
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = to(parts[i] * double(i + 1), t[0].device());
  return ringtape::concat(parts);
}
static const RegisterOp register_scatter{{
    .name = "scatter",
    .samples = {{"uneven", {{{7, 3}}}, call_scatter},
                {"fewer_rows", {{{2, 3}}}, call_scatter},
                {"one_axis", {{{6}}}, call_scatter},
                {"empty", {{{0, 3}}}, call_scatter}},
    .invalid = {{"rank", {{{}}}, call_scatter},
                {"devices", {{{3}}}, [](const Tensors& t) { return scatter(t[0], {})[0]; }}},
}};

static Tensors spread(const Tensors& t) {
  Tensors parts = t;
  for (size_t i = 1; i < parts.size(); ++i) parts[i] = to(parts[i], {DeviceType::cpu, int(i)});
  return parts;
}
static Tensor call_gather(const Tensors& t) { return gather(spread(t), t.empty() ? Device{} : t[0].device()); }
static const RegisterOp register_gather{{
    .name = "gather_parts",  // gather is another op
    .samples = {{"uneven", {{{2, 3}}, {{1, 3}}, {{4, 3}}}, call_gather},
                {"with_empty", {{{2, 3}}, {{0, 3}}}, call_gather},
                {"scalars", {{{}}, {{}}}, call_gather}},
    .invalid = {{"shapes", {{{2, 3}}, {{2, 4}}}, call_gather},
                {"rank", {{{2}}, {{}}}, call_gather},
                {"none", {}, call_gather}},
}};

static Tensor call_broadcast(const Tensors& t) {
  const Tensors ys = broadcast(t[0], three(t[0]));
  return ys[0] * 2 + to(square(ys[1]), t[0].device()) - to(tanh(ys[2]), t[0].device());
}
static Tensor call_broadcast_coalesced(const Tensors& t) {
  const auto lists = broadcast_coalesced(t, three(t[0]), 128);
  Tensors ys;
  for (size_t d = 0; d < lists.size(); ++d)
    for (size_t j = 0; j < t.size(); ++j)
      ys.push_back(to(reshape(square(lists[d][j]) * double(d + j + 1), {-1}), t[0].device()));
  return ringtape::concat(ys);
}
static const RegisterOp register_broadcast{{
    .name = "broadcast",
    .samples = {{"three", {{{2, 3}}}, call_broadcast}, {"empty", {{{0, 3}}}, call_broadcast}},
    .invalid = {{"devices", {{{3}}}, [](const Tensors& t) { return broadcast(t[0], {})[0]; }}},
}};
static const RegisterOp register_broadcast_coalesced{{
    .name = "broadcast_coalesced",
    .samples = {{"one", {{{2, 3}}}, call_broadcast_coalesced},
                {"packets", {{{5, 3}}, {{7}}, {{}}, {{40}}, {{0, 2}}}, call_broadcast_coalesced}},
    .invalid = {{"devices", {{{3}}}, [](const Tensors& t) { return broadcast_coalesced(t, {})[0][0]; }}},
    .tolerance = 4,
}};

static Tensor call_reduce_add(const Tensors& t) { return reduce_add(spread(t), t.empty() ? Device{} : t[0].device()); }
static Tensor call_reduce_add_coalesced(const Tensors& t) {
  const Tensors there = spread(t);
  std::vector<Tensors> lists;
  for (const Tensor& x : there) lists.push_back({x * 2, square(x), slice(x, 0, 0, 1)});
  const Tensors ys = reduce_add_coalesced(lists, t[0].device(), 200);
  return ys[0] + ys[1] * ys[2];
}
static const RegisterOp register_reduce_add{{
    .name = "reduce_add",
    .samples = {{"three", {{{2, 3}}, {{2, 3}}, {{2, 3}}}, call_reduce_add},
                {"one", {{{4}}}, call_reduce_add},
                {"empty", {{{0, 3}}, {{0, 3}}}, call_reduce_add}},
    .invalid = {{"shapes", {{{2, 3}}, {{1, 3}}}, call_reduce_add}, {"none", {}, call_reduce_add}},
}};
static const RegisterOp register_reduce_add_coalesced{{
    .name = "reduce_add_coalesced",
    .samples = {{"packets", {{{5, 3}}, {{5, 3}}, {{5, 3}}}, call_reduce_add_coalesced},
                {"empty", {{{5, 0}}, {{5, 0}}}, call_reduce_add_coalesced}},
    .invalid = {{"shapes", {{{2, 3}}, {{3, 2}}}, call_reduce_add_coalesced},
                {"lists",
                 {{{3}}, {{3}}},
                 [](const Tensors& t) {
                   return reduce_add_coalesced({t, {t[0]}}, {})[0];
                 }}},
    .tolerance = 4,
}};

}  // namespace ringtape::comm
