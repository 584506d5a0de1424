#include <cmath>

#include "comm/parallel/agreement.h"
#include "core/log.h"
#include "train/io/json.h"
#include "train/loop/trainer.h"

// What a trainer says about its own rank, and warnings.
namespace ringtape {

// This rank's own line for epoch at_.epoch so far: the mean loss of its own images, and its times.
std::string Trainer::own_figures() const {
  Readback last = own_loss_;
  const double losses = own_losses_ + (last.defined() ? last.get().item() : 0), share = own_share_ + pending_share_;
  const PassSeconds& s = at_.seconds;
  const auto ms = [this](double seconds) {
    return shortest(std::round(1e5 * seconds / double(std::max<int64_t>(at_.batch, 1))) / 100);
  };
  return concat("epoch ", at_.epoch + 1, "/", p_.epochs, "  step ", steps(), "  own loss ",
                share > 0 ? shortest(std::round(1e4 * losses / share) / 1e4) : "none", "  ", ms(s.whole),
                " ms per step: data ", ms(s.data), ", forward ", ms(s.forward), ", backward ", ms(s.backward),
                ", optimizer ", ms(s.optimizer));
}

std::string Trainer::end_text() const {
  const LimitOptions& l = p_.limits;
  const std::string where = concat("epoch ", epochs_begun(), " of ", p_.epochs);
  if (ended_by_ == "max-steps") return concat("by --max-steps ", l.max_steps, ", in ", where);
  if (ended_by_ == "max-time") return concat("by --max-time ", l.max_time, " at step ", steps(), ", in ", where);
  if (ended_by_ != "patience") return "";
  const std::string& by = p_.checkpoint.best_by;
  const auto rounded = [score = at_.improved->score](double unit) { return shortest(std::round(score * unit) / 100); };
  const std::string was = by == "loss"       ? concat("loss ", shortest(std::round(-1e4 * at_.improved->score) / 1e4))
                          : by == "balanced" ? concat("balanced ", rounded(1e4), " %")
                                             : concat("top-1 ", rounded(1e4), " %");
  return concat("by --patience ", l.patience, " after ", where, ": no validation was better than that of epoch ",
                at_.improved->epoch, " (", was, ")");
}

void Trainer::warn_if_collapsed(double loss, std::optional<double> spread) const {
  constexpr double kNear = 2e-3;
  constexpr int64_t kFirstSteps = 50;  // during which outputs may still be nearly equal
  const auto collapsed = p_.learner->facts.collapsed_loss;
  if (!leads() || !collapsed || steps() < kFirstSteps || std::abs(loss - *collapsed) > kNear) return;
  log_warn(p_.task.method_name, ": the loss of epoch ", at_.epoch + 1, " was ", loss,
           ", the value for outputs that do not depend on the image (", *collapsed,
           spread ? concat("; spread ", *spread) : "",
           "): the training has collapsed; try another --lr, more --warmup-epochs or another --normalize");
}

// Names the ranks whose samples made the loss non-finite if they are some, not all; else empty.
std::string Trainer::whose_loss() const {
  Readback own = own_loss_;
  const bool bad = own.defined() && !std::isfinite(own.get().item());
  std::string ranks;
  int count = 0;
  const std::vector<int64_t> all = of_each(p_.group, bad);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r]) ranks += concat(++count > 1 ? ", " : "", r);
  if (count == 0 || count == p_.group.size()) return "";
  return concat(", first on ", count == 1 ? "rank " : "ranks ", ranks, " of ", p_.group.size(), ",");
}

}  // namespace ringtape
