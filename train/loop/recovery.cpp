#include "train/loop/recovery.h"

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"
#include "train/loop/step_parts.h"

namespace ringtape {

static constexpr uint64_t kApart = uint64_t{1} << 48;  // numbers between the ranks' positions in a stream

std::vector<TensorFile> Recovery::files() const {
  std::vector<TensorFile> out = {{"model.safetensors", p_.step->weights(), p_.metadata},
                                 {"optimizer.safetensors", p_.step->state()}};
  if (p_.step->ema()) out.push_back({"ema.safetensors", p_.step->average(), p_.metadata});
  return out;
}

void Recovery::checkpoint(const std::function<void()>& save) {
  if (saved_step_ == steps()) return;
  RT_CHECK_AS(Error, p_.step->finite(), "the weights are no longer finite after step ", steps(), " (learning rate ",
              p_.schedule.at(steps()), ") and are not saved; lower --lr, or find the operation with RINGTAPE_NAN=1");
  at_.step = saved_step_ = steps();
  at_.parameter_steps = p_.step->own_counts();
  at_.tally = meter_.of_all_ranks().totals();
  at_.random = default_generator().state();
  at_.counters = p_.group.size() > 1 ? of_each(p_.group, int64_t(at_.random.counter)) : std::vector<int64_t>();
  replicate(p_.group, p_.step->buffers());
  if (p_.step->ema() && average_known_ != steps()) weights_to_judge();
  p_.step->exchange([&] {
    if (save) save();
  });
}

void Recovery::restore(const TrainState& state) {
  at_ = state;
  meter_.restart(p_.group.rank() == 0 || meter_.counts_all() ? state.tally : Tally::Totals{});
  p_.step->set_count(state.step, state.parameter_steps);
  p_.schedule.set_watched(state.watched);
  saved_step_ = state.step;
  average_known_ = -1;
  default_generator().set_state(own_random(state));
}

// Ranks draw from distant positions of one stream, so that each has its own dropout. If the number of ranks is
// unchanged, each resumes at its own position.
RandomState Recovery::own_random(const TrainState& state) const {
  RandomState own = state.random;
  if (p_.step->placement().shares() > 0) return own;  // each share has its own
  const auto rank = uint64_t(p_.group.rank());
  if (state.counters.size() == size_t(p_.group.size())) own.counter = uint64_t(state.counters[rank]);
  else own.counter += kApart * rank;
  return own;
}

std::string Recovery::share(int source, const std::string& text) {
  if (p_.group.size() == 1) return text;
  p_.step->exchange([] {});  // which rank 0 has done before
  at_.step = steps(), at_.parameter_steps = p_.step->own_counts();
  const std::string from = concat("the state of rank ", source);
  const Json ours{{"state", to_json(at_)}, {"saved", saved_step_}, {"text", text}};
  const Json json = parse_json(comm::broadcast_text(p_.group, ours.text(), source), from);
  const JsonFields fields(json, from);
  restore(parse_train_state(json["state"], from));
  saved_step_ = fields.integer("saved", -1);
  replicate(p_.group, p_.step->replicated(), source);
  if (steps() == 0) p_.step->restart_average();
  return fields.text("text");
}

void Recovery::begin_step() {
  if (!p_.membership) return;
  const Tensors buffers = p_.step->buffers();
  if (buffers_.empty()) buffers_ = clones(buffers);
  else copy_all(buffers_, buffers);
  random_ = default_generator().state();
  in_step_ = true;
}

Carried Recovery::carry() {
  // Weights and optimizer change last, when all ranks' gradients are there.
  if (in_step_) {
    copy_all(p_.step->buffers(), buffers_);
    default_generator().set_state(random_);
  }
  in_step_ = false;
  Carried out{.state = at_, .saved_step = saved_step_, .tensors = clones(p_.step->replicated())};
  out.state.step = steps(), out.state.parameter_steps = p_.step->own_counts();
  out.state.tally = meter_.tally().totals();
  out.state.random = default_generator().state();
  out.state.random.counter %= kApart;
  out.state.counters.clear();
  return out;
}

void Recovery::take(const Carried& carried) {
  restore(carried.state);
  saved_step_ = carried.saved_step;
  copy_all(p_.step->replicated(), carried.tensors);
}

std::unique_ptr<AveragedModel> Recovery::weights_to_judge() {
  // Running statistics differ between ranks, since each has its own samples: rank 0's are copied to all, as in
  // PyTorch's DistributedDataParallel.
  replicate(p_.group, p_.step->buffers());
  if (!p_.step->ema()) return nullptr;
  const Tensors known = average_known_ == steps() ? p_.step->average_statistics() : Tensors();
  auto out = std::make_unique<AveragedModel>(p_.task, *p_.step->ema(), p_.learner->split.train, known, p_.evaluation);
  p_.step->set_average_statistics();
  average_known_ = steps();
  return out;
}

void Recovery::take_best(const std::function<void(int64_t step)>& load) {
  if (p_.checkpoint.exported != "best" || !at_.best || at_.best->step == steps()) return;
  p_.step->exchange([&] { load(at_.best->step); });
  average_known_ = -1;
  replicate(p_.group, p_.step->replicated());
}

}  // namespace ringtape
