#include "comm/parallel/agreement.h"

#include <cstring>
#include <sstream>
#include <string_view>

namespace ringtape::comm {

// FNV-1a, 64 bits.
static int64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return int64_t(h);
}

static Device device_of(const ProcessGroup& group) { return group.transport().device(); }

static std::string first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream a(theirs), b(ours);
  for (std::string x, y;;) {
    const bool more_a = bool(std::getline(a, x)), more_b = bool(std::getline(b, y));
    if (!more_a && !more_b) return "other white space";
    if (!more_a) return concat("'", y, "', which rank 0 does not have");
    if (!more_b) return concat("no '", x, "', which rank 0 has");
    if (x != y) return concat("'", y, "', rank 0 has '", x, "'");
  }
}

std::string broadcast_text(ProcessGroup& group, const std::string& text, int root) {
  if (group.size() == 1) return text;
  const Tensor size = from_host(std::vector<int64_t>{int64_t(text.size())}, {1}, device_of(group));
  group.broadcast(size, root).wait();
  std::string out = text;
  out.resize(size_t(size.copy_to(Device{}).item()));
  Tensor bytes({int64_t(out.size())}, DType::u8);
  std::memcpy(bytes.data<uint8_t>(), out.data(), out.size());
  bytes = bytes.copy_to(device_of(group));
  group.broadcast(bytes, root).wait();
  bytes = bytes.copy_to(Device{});
  std::memcpy(out.data(), bytes.data<uint8_t>(), out.size());
  return out;
}

void check_same(ProcessGroup& group, const std::string& what, const std::string& lines) {
  if (group.size() == 1) return;
  const Tensor mine = from_host(std::vector<int64_t>{hash(lines)}, {1}, device_of(group));
  const Tensor all({group.size()}, DType::i64, device_of(group));
  group.all_gather(all, mine).wait();
  const Tensor host = all.copy_to(Device{});
  const auto hashes = host.span<int64_t>();
  if (std::count(hashes.begin(), hashes.end(), hashes[0]) == group.size()) return;
  const std::string theirs = broadcast_text(group, lines, 0);
  if (theirs != lines) {
    Failure& failure = *group.transport().context().failure;
    failure.raise(concat(what, " differ: rank ", group.rank(), " has ", first_difference(theirs, lines)));
    failure.check();
  }
  group.barrier().wait();  // fails with the message of the rank that differs
}

bool any_of(ProcessGroup& group, bool wish) { return max_over_ranks(group, wish) > 0; }

double max_over_ranks(ProcessGroup& group, double own) {
  if (group.size() == 1) return own;
  const Tensor most = from_host(std::vector<double>{own}, {1}, device_of(group));
  group.all_reduce(most, ReduceOp::max).wait();
  return most.item();
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own) {
  std::vector<std::string> out;
  for (int rank = 0; rank < group.size(); ++rank) out.push_back(broadcast_text(group, own, rank));
  return out;
}

std::vector<int64_t> of_each(ProcessGroup& group, int64_t own) {
  if (group.size() == 1) return {own};
  const Tensor all({group.size()}, DType::i64, device_of(group));
  group.all_gather(all, from_host(std::vector<int64_t>{own}, {1}, device_of(group))).wait();
  const Tensor host = all.copy_to(Device{});
  const auto values = host.span<int64_t>();
  return {values.begin(), values.end()};
}

void replicate(ProcessGroup& group, const std::vector<Tensor>& tensors, int root) {
  if (group.size() == 1) return;
  std::string checksums;
  for (const Tensor& t : tensors) {
    group.broadcast(t, root).wait();
    const Tensor host = t.copy_to(Device{});
    const size_t bytes = size_t(host.size()) * size_of(host.dtype());
    checksums += concat(t.dtype(), " ", t.shape(), " with checksum ",
                        hash({static_cast<const char*>(View(host).data), bytes}), "\n");
  }
  check_same(group, "the replicas", checksums);
}

}  // namespace ringtape::comm
