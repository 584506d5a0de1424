#include "train/ranks.h"

#include <zlib.h>

#include "autograd/ops.h"
#include "comm/same.h"

namespace ringtape {

Tally of_all(comm::ProcessGroup* group, const Tally& own) {
  if (!group) return own;
  const Tally::Totals& t = own.totals();
  const Tensor sums =
      from_host(std::vector<double>{double(t.samples), double(t.top1), double(t.top5), t.loss}, {4}, group->transport().device());
  group->all_reduce(sums).wait();
  const Tensor host = sums.copy_to(Device{});
  const auto s = host.span<double>();
  return Tally({int64_t(s[0]), int64_t(s[1]), int64_t(s[2]), s[3]});
}

bool any_of(comm::ProcessGroup* group, bool wish) { return most_of(group, wish) > 0; }

double most_of(comm::ProcessGroup* group, double own) {
  if (!group) return own;
  const Tensor most = from_host(std::vector<double>{own}, {1}, group->transport().device());
  group->all_reduce(most, ReduceOp::max).wait();
  return most.item();
}

std::vector<std::string> texts_of(comm::ProcessGroup* group, const std::string& own) {
  if (!group) return {own};
  std::vector<std::string> out;
  for (int rank = 0; rank < group->size(); ++rank) out.push_back(comm::broadcast_text(*group, own, rank));
  return out;
}

std::vector<int64_t> of_each(comm::ProcessGroup& group, int64_t own) {
  const Device device = group.transport().device();
  const Tensor all({group.size()}, DType::i64, device);
  group.all_gather(all, from_host(std::vector<int64_t>{own}, {1}, device)).wait();
  const Tensor host = all.copy_to(Device{});
  const auto values = host.span<int64_t>();
  return {values.begin(), values.end()};
}

void replicate(comm::ProcessGroup& group, const std::vector<Tensor>& tensors) {
  std::string checksums;
  for (const Tensor& t : tensors) {
    group.broadcast(t, 0).wait();
    const Tensor host = t.copy_to(Device{});
    const auto* const bytes = static_cast<const Bytef*>(View(host).data);
    checksums += concat(t.dtype(), " ", t.shape(), " with CRC-32 ", crc32_z(0, bytes, size_t(host.size()) * size_of(host.dtype())), "\n");
  }
  comm::check_same(group, "the replicas", checksums);
}

}  // namespace ringtape
