#include "train/loop/ranks.h"

#include <zlib.h>

#include "autograd/ops.h"
#include "comm/parallel/agreement.h"

namespace ringtape {

Tally of_all(comm::ProcessGroup& group, const Tally& own) {
  const Tally::Totals& t = own.totals();
  if (group.size() == 1) return Tally(t);
  const Tensor sums = from_host(std::vector<double>{double(t.samples), double(t.top1), double(t.top5), t.loss}, {4},
                                group.transport().device());
  group.all_reduce(sums).wait();
  const Tensor host = sums.copy_to(Device{});
  const auto s = host.span<double>();
  return Tally({int64_t(s[0]), int64_t(s[1]), int64_t(s[2]), s[3]});
}

bool any_of(comm::ProcessGroup& group, bool wish) { return max_over_ranks(group, wish) > 0; }

double max_over_ranks(comm::ProcessGroup& group, double own) {
  if (group.size() == 1) return own;
  const Tensor most = from_host(std::vector<double>{own}, {1}, group.transport().device());
  group.all_reduce(most, ReduceOp::max).wait();
  return most.item();
}

std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& own) {
  std::vector<std::string> out;
  for (int rank = 0; rank < group.size(); ++rank) out.push_back(comm::broadcast_text(group, own, rank));
  return out;
}

std::vector<int64_t> of_each(comm::ProcessGroup& group, int64_t own) {
  if (group.size() == 1) return {own};
  const Device device = group.transport().device();
  const Tensor all({group.size()}, DType::i64, device);
  group.all_gather(all, from_host(std::vector<int64_t>{own}, {1}, device)).wait();
  const Tensor host = all.copy_to(Device{});
  const auto values = host.span<int64_t>();
  return {values.begin(), values.end()};
}

void replicate(comm::ProcessGroup& group, const std::vector<Tensor>& tensors) {
  if (group.size() == 1) return;
  std::string checksums;
  for (const Tensor& t : tensors) {
    group.broadcast(t, 0).wait();
    const Tensor host = t.copy_to(Device{});
    const auto* const bytes = static_cast<const Bytef*>(View(host).data);
    checksums += concat(t.dtype(), " ", t.shape(), " with CRC-32 ",
                        crc32_z(0, bytes, size_t(host.size()) * size_of(host.dtype())), "\n");
  }
  comm::check_same(group, "the replicas", checksums);
}

}  // namespace ringtape
