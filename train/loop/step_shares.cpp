#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/part.h"
#include "kernels/copy.h"
#include "train/loop/step.h"
#include "train/loop/step_parts.h"

// A step whose batch consists of fixed shares: its results have the same bits whichever ranks compute them.
namespace ringtape {

namespace {

bool is_float(const Tensor& x) { return x.dtype() != DType::i64 && x.dtype() != DType::u8 && x.dtype() != DType::b8; }

Tensor in_f64(const Tensor& x) {
  Tensor out(x.shape(), DType::f64, x.device());
  copy(out, x);
  return out;
}

// Each share draws from a place of its own, which depends on the step.
RandomState place_of(const RandomState& base, int64_t step, int64_t share) {
  return {base.seed, Stream(uint64_t(Stream::tensors) | uint64_t(step) << 8), uint64_t(share) << 48};
}

// What a share makes of the buffers, for a sum over all of them. What it makes of running statistics is averaged;
// counters, which all change alike, are taken from the first share, as differences, which floats hold exactly.
void sum_buffers(const Tensors& places, const Tensors& buffers, const Tensors& before, double share, bool first) {
  for (size_t i = 0; i < buffers.size(); ++i)
    copy(places[i],
         is_float(buffers[i]) ? in_f64(buffers[i]) * share : (in_f64(buffers[i]) - in_f64(before[i])) * double(first));
}

}  // namespace

// All shares begin with the same buffers.
Step::Result Step::share_gradients(const Tensors& images, const Labels& y, GlobalBatch global,
                                   const std::function<void(StepPhase)>& ended) {
  const int64_t all = global.samples > 0 ? global.samples : y.size();
  const auto shares = int(placement_->shares());
  const Part own = part_of(shares, placement_->group().size(), placement_->group().rank());
  const int64_t first = part_of(all, shares, int(own.begin)).begin;
  const Tensors buffers = this->buffers(), before = clones(buffers), places = placement_->summed(buffers);
  const RandomState random = default_generator().state();
  Result out;
  for (int64_t w = own.begin; w < own.end; ++w) {
    const Part place = part_of(all, shares, int(w)), rows{place.begin - first, place.end - first};
    const double share = double(rows.size()) / double(all);
    const bool last = w + 1 == own.end;
    copy_all(buffers, before);
    default_generator().set_state(place_of(random, count() + 1, w));
    Outcome part;
    Tensor loss;
    out.right = {};
    if (rows.size() > 0) {
      const Labels labels = y.rows(rows);
      part = objective_(slice_rows(images, rows), labels);
      loss = part.loss.detach() * share;
      out.loss = out.loss.defined() ? out.loss + loss : loss, out.spread = part.spread;
      out.right = count_right(part.logits.defined() ? Tensors{part.logits} : Tensors{}, labels.larger());
    }
    sum_buffers(places, buffers, before, share, w == 0);
    if (ended) ended(StepPhase::forward);
    Tensor total = total_of(std::move(part));
    const comm::Reducer::Step own_part{loss, rows.size(), all, with_right(last ? global.riders : Riders{}, out.right)};
    if (last) placement_->arm(total, own_part);
    if (total.defined()) backward(std::move(total), scale_.seed(share, total.dtype()));
    last ? placement_->finish() : placement_->keep(own_part);
    if (ended) ended(StepPhase::backward);
  }
  default_generator().set_state(random);
  for (size_t i = 0; i < buffers.size(); ++i)
    copy(buffers[i], is_float(buffers[i]) ? places[i] : in_f64(before[i]) + in_f64(places[i]));
  const comm::ControlWords& sums = placement_->reducer()->words();
  out.own = out.loss, out.loss = sums.loss(), out.right = right_of(sums.riders());
  return out;
}

}  // namespace ringtape
