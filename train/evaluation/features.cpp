#include "train/evaluation/features.h"

#include <numeric>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/prepared_by_size.h"
#include "autograd/tape.h"
#include "comm/parallel/agreement.h"
#include "core/part.h"
#include "kernels/copy.h"
#include "nn/mode_guard.h"
#include "train/data/loader.h"
#include "train/report/progress.h"

namespace ringtape {
static Tensor row_window(const Tensor& x, int64_t begin, int64_t count) {
  const int64_t columns = x.dim(1);
  return x.window({count, columns}, {columns, 1}, begin * columns);
}

// Gathers the (n, F) rows, of which each rank has its part_of in `own`, in the order of the ranks. Parts differ by at
// most one row: the shorter ones are padded by one row, which is dropped afterwards.
static Tensor gather_rows(comm::ProcessGroup& group, const Tensor& own, int64_t n) {
  const int64_t ranks = group.size(), each = (n + ranks - 1) / ranks, columns = own.dim(1);
  Tensor sent = own;
  if (own.dim(0) < each) {
    sent = zeros({each, columns}, own.dtype(), own.device());
    if (own.dim(0) > 0) copy(row_window(sent, 0, own.dim(0)), own);
  }
  const Tensor all({ranks * each, columns}, own.dtype(), own.device());
  group.all_gather(all, sent).wait();
  if (ranks * each == n) return all;
  const Tensor out({n, columns}, own.dtype(), own.device());
  for (int r = 0; r < group.size(); ++r)
    if (const Part part = part_of(n, group.size(), r); part.size() > 0)
      copy(row_window(out, part.begin, part.size()), row_window(all, r * each, part.size()));
  return out;
}

// Features (N, F) and labels (N, 1); undefined for no samples.
static Features embed_part(const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
                           const EmbedOptions& options, SharedPasses& passes) {
  Features out;
  if (samples.empty()) return out;
  const int64_t n = int64_t(samples.size());
  const Loader loader(
      data, samples,
      {.batch_size = std::min(eval_batch(data.image()), n), .workers = options.workers, .device = options.device});
  Progress bar(options.progress, loader.batches(), !options.progress.empty());
  const PreparedBySize prepared(f, autocast_dtype());
  Loader::Epoch epoch = loader.epoch(0);
  for (int64_t at = 0; const Batch* batch = epoch.next(); at += batch->y.size()) {
    if (!passes.begin(batch->index)) break;
    const Tensor y = options.weights ? f(batch->x) : prepared(batch->x);
    RT_CHECK_AS(ShapeError, y.rank() == 2 && y.dim(0) == batch->y.size(), "embed: expected features (", batch->y.size(),
                ", F), got ", y.shape());
    if (at == 0) out = {Tensor({n, y.dim(1)}, DType::f32, y.device()), Tensor({n, 1}, DType::i64, y.device())};
    copy(row_window(out.x, at, y.dim(0)), y);
    copy(row_window(out.labels, at, y.dim(0)), reshape(batch->y, {y.dim(0), 1}));
    bar.update(batch->index + 1);
  }
  return out;
}

std::vector<int64_t> own_part(const std::vector<int64_t>& samples, const comm::ProcessGroup& group) {
  const Part own = part_of(int64_t(samples.size()), group.size(), group.rank());
  return {samples.begin() + own.begin, samples.begin() + own.end};
}

SharedPasses::SharedPasses(int64_t n, int64_t batch, comm::ProcessGroup& group, comm::ShardedBuffers* weights,
                           bool (*interrupted)())
    : group_(group), weights_(weights), interrupted_(interrupted) {
  const auto batches = [&](int rank) { return (part_of(n, group.size(), rank).size() + batch - 1) / batch; };
  own_ = batches(group.rank()), least_ = batches(group.size() - 1), most_ = batches(0);
}

// Ranks that gather weights end together, before a batch that all of them have.
bool SharedPasses::begin(int64_t batch) {
  if (interrupted_ && !weights_) cut_ = interrupted_();
  if (interrupted_ && weights_ && batch < least_) cut_ = any_of(group_, interrupted_());
  if (weights_ && !cut_ && batch == least_) weights_->announce(true);
  return !cut_;
}

void SharedPasses::end() {
  if (weights_ && !cut_ && least_ != most_) {
    if (own_ == most_) weights_->announce(false);
    else weights_->follow();
  }
  if (!interrupted_) return;
  const std::vector<int64_t> cut = of_each(group_, cut_ && interrupted_());
  if (const int64_t ranks = std::reduce(cut.begin(), cut.end()); ranks > 0) throw Interrupted(ranks);
}

Features embed_own(nn::Module& module, const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
                   const EmbedOptions& options, comm::ProcessGroup& group) {
  RT_CHECK_AS(UsageError, !samples.empty(), "embed: no samples");
  const NoGrad no_grad;
  const nn::ModeGuard mode(module, false);
  SharedPasses passes(int64_t(samples.size()), eval_batch(data.image()), group, options.weights, options.interrupted);
  Features out = embed_part(f, data, own_part(samples, group), options, passes);
  passes.end();
  if (out.labels.defined()) out.labels = reshape(out.labels, {out.size()});
  return out;
}

Features embed(nn::Module& module, const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
               const EmbedOptions& options, comm::ProcessGroup& group) {
  Features out = embed_own(module, f, data, samples, options, group);
  const int64_t n = int64_t(samples.size());
  if (group.size() > 1) {
    const auto width = int64_t(max_over_ranks(group, out.x.defined() ? double(out.x.dim(1)) : 0));
    if (!out.x.defined())
      out = {Tensor({0, width}, DType::f32, options.device), Tensor({0}, DType::i64, options.device)};
    const Tensor labels = gather_rows(group, reshape(out.labels, {out.size(), 1}), n);
    out = {gather_rows(group, out.x, n), reshape(labels, {n})};
  }
  return out;
}

}  // namespace ringtape
