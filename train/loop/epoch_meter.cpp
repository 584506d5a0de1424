#include "train/loop/epoch_meter.h"

#include <cmath>
#include <utility>

#include "comm/parallel/agreement.h"
#include "core/log.h"
#include "kernels/binary.h"
#include "train/io/json.h"

namespace ringtape {

void EpochMeter::log(const Step::Result& result, int64_t images, double lr) {
  const int64_t step = p_.step->count();
  if (p_.log_every == 0) return;
  logged_images_ += images;
  if (step % p_.log_every != 0) return;
  const Readback loss(result.loss);
  const GradientScale& scale = p_.step->gradient_scale();
  const Readback norm = scale.active() ? Readback(scale.norm()) : Readback(),
                 factor = scale.dynamic() ? Readback(scale.state().window({1}, {1})) : Readback();
  flush_log();
  line_loss_ = loss, line_norm_ = norm, line_scale_ = factor;
  line_ = {};
  line_.split = "train_step";
  line_.epoch = at_.epoch + 1, line_.step = step, line_.lr = lr;
  line_.images_per_s = double(std::exchange(logged_images_, 0)) / logged_.lap();
  if (p_.membership) flush_log();
}

void EpochMeter::flush_log() {
  if (!line_loss_.defined()) return;
  line_.loss = line_loss_.get().item();
  if (line_norm_.defined()) line_.grad_norm = line_norm_.get().item();
  if (line_scale_.defined()) line_.loss_scale = line_scale_.get().item();
  line_loss_ = line_norm_ = line_scale_ = {};
  report_(line_);
}

void EpochMeter::add(const Step::Result& result, const Batch& batch, double lr, double loader_images_per_s) {
  const Tally::Totals& right = result.right;
  if (counts_all()) tally_.add(result.loss.copy_to(Device{}).item(), batch.global_size, right.top1, right.top5);
  else tally_.add(result.loss, result.ranks, batch.y.size());  // reads the previous step
  log(result, batch.global_size, lr);
  loader_images_per_s_ = loader_images_per_s;
  if (result.spread.defined()) spread_ = result.spread;
  if (p_.group.size() == 1 || !tally_.finite() || !result.own.defined()) return;
  if (!own_.losses.defined()) own_.losses = zeros({}, DType::f64, result.own.device());
  add_forward(own_.losses, own_.losses, result.own);
  own_.parts += double(batch.y.size()) / double(std::max<int64_t>(batch.global_size, 1));
}

bool EpochMeter::settle() {
  flush_log();
  tally_.finish();
  at_.seconds.total += since_.lap();
  const comm::Reducer::Totals now = sent();
  at_.traffic.bytes += now.bytes - counted_.bytes;
  at_.traffic.seconds += (now.communicating - counted_.communicating).count();
  at_.traffic.exposed += (now.exposed - counted_.exposed).count();
  counted_ = now;
  return finite();
}

comm::Reducer::Totals EpochMeter::sent() const {
  comm::Reducer::Totals out = p_.step->placement().traffic();
  if (p_.task.replicas) out.bytes += p_.task.replicas->traffic().bytes();
  return out;
}

Metrics EpochMeter::metrics() {
  Metrics m = epoch_metrics(p_.group, of_all_ranks(), "train", at_.seconds.total, p_.task.devices());
  m.lr = p_.schedule.at(p_.step->count() - 1);
  if (!p_.learner->facts.counts_right) m.top1 = m.top5 = std::nullopt;
  if (spread_.defined()) m.spread = spread_.item();
  warn_if_collapsed(m);
  m.data_s = at_.seconds.data, m.forward_s = at_.seconds.forward;
  m.backward_s = at_.seconds.backward, m.optimizer_s = at_.seconds.optimizer;
  m.steps = at_.batch;
  if (p_.task.data.train.is_encoded()) m.loader_images_per_s = loader_images_per_s_;
  const bool reduces = p_.step->placement().reducer();
  if (reduces || p_.task.replicas) m.comm_bytes = double(at_.traffic.bytes);
  // On a GPU the host only submits work and cannot time it.
  const bool host_waits = p_.task.device.type == DeviceType::cpu;
  if (reduces && host_waits) m.comm_s = at_.traffic.seconds, m.exposed_s = at_.traffic.exposed;
  return m;
}

void EpochMeter::warn_if_collapsed(const Metrics& m) const {
  constexpr double kNear = 2e-3;
  constexpr int64_t kFirstSteps = 50;  // during which outputs may still be nearly equal
  const auto collapsed = p_.learner->facts.collapsed_loss;
  if (p_.group.rank() > 0 || !collapsed || p_.step->count() < kFirstSteps || std::abs(*m.loss - *collapsed) > kNear)
    return;
  log_warn(p_.task.method_name, ": the loss of epoch ", at_.epoch + 1, " was ", *m.loss,
           ", the value for outputs that do not depend on the image (", *collapsed,
           m.spread ? concat("; spread ", *m.spread) : "",
           "): the training has collapsed; try another --lr, more --warmup-epochs or another --normalize");
}

std::string EpochMeter::own_figures() const {
  const double losses = own_.losses.defined() ? own_.losses.item() : 0, parts = own_.parts;
  const PassSeconds& s = at_.seconds;
  const auto ms = [this](double seconds) {
    return shortest(std::round(1e5 * seconds / double(std::max<int64_t>(at_.batch, 1))) / 100);
  };
  return concat("epoch ", at_.epoch + 1, "/", p_.epochs, "  step ", p_.step->count(), "  own loss ",
                parts > 0 ? shortest(std::round(1e4 * losses / parts) / 1e4) : "none", "  ", ms(s.total),
                " ms per step: data ", ms(s.data), ", forward ", ms(s.forward), ", backward ", ms(s.backward),
                ", optimizer ", ms(s.optimizer));
}

std::string EpochMeter::whose_loss() const {
  const bool bad = own_.losses.defined() && !std::isfinite(own_.losses.item());
  std::string ranks;
  int count = 0;
  const std::vector<int64_t> all = of_each(p_.group, bad);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r]) ranks += concat(++count > 1 ? ", " : "", r);
  if (count == 0 || count == p_.group.size()) return "";
  return concat(", first on ", count == 1 ? "rank " : "ranks ", ranks, " of ", p_.group.size(), ",");
}

}  // namespace ringtape
