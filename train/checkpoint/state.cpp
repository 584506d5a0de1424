#include "train/checkpoint/state.h"

#include "core/check.h"
#include "train/io/json.h"
#include "train/io/json_reader.h"

namespace ringtape {

// Numbers are written so that reading gives the same bits.
Json to_json(const TrainState& s) {
  Json out{
      {"step", s.step},
      {"epoch", s.epoch},
      {"batch", s.batch},
      {"tally", {{"samples", s.tally.samples}, {"top1", s.tally.top1}, {"top5", s.tally.top5}, {"loss", s.tally.loss}}},
      {"seconds",
       {{"whole", s.seconds.total},
        {"data", s.seconds.data},
        {"forward", s.seconds.forward},
        {"backward", s.seconds.backward},
        {"optimizer", s.seconds.optimizer}}},
      {"random", {{"seed", s.random.seed}, {"stream", uint64_t(s.random.stream)}, {"counter", s.random.counter}}}};
  if (s.traffic.bytes > 0)
    out["traffic"] = {{"bytes", s.traffic.bytes}, {"seconds", s.traffic.seconds}, {"exposed", s.traffic.exposed}};
  if (s.validated > 0) out["validated"] = s.validated;
  if (s.reported) out["reported"] = 1;
  if (!s.counters.empty()) out["counters"] = s.counters;
  if (!s.parameter_steps.empty()) out["parameter_steps"] = s.parameter_steps;
  if (s.improved) out["improved"] = {{"epoch", s.improved->epoch}, {"score", s.improved->score}};
  if (s.watched)
    out["watched"] = {
        {"best", s.watched->best}, {"bad", s.watched->bad}, {"cooldown", s.watched->cooldown}, {"lr", s.watched->lr}};
  if (s.trained > 0) out["trained_s"] = s.trained;
  if (s.best) out["best"] = {{"step", s.best->step}, {"score", s.best->score}};
  out["lengths"] = s.lengths;
  return out;
}

static constexpr double kLowest = -std::numeric_limits<double>::max();

// "top1" in states of earlier versions.
static double score_in(const JsonFields& fields) {
  return fields.has("score") ? fields.real("score", kLowest) : fields.real("top1", 0, 1);
}

static std::map<std::string, int64_t> lengths_in(const JsonFields& fields, const std::string& where) {
  std::map<std::string, int64_t> out;
  for (const std::string& name : fields.keys()) {
    RT_CHECK_AS(FormatError, name.find('/') == std::string::npos, where, ": lengths: '", name,
                "' is not the name of a file");
    out[name] = fields.integer(name.c_str());
  }
  return out;
}

static void check_steps(const TrainState& s, const std::string& where, int64_t per_epoch) {
  RT_CHECK_AS(FormatError, s.batch <= per_epoch, where, ": batch ", s.batch, " of an epoch of ", per_epoch);
  const bool fits = s.epoch <= s.step / per_epoch && s.step == s.epoch * per_epoch + s.batch;
  RT_CHECK_AS(FormatError, fits, where, ": step ", s.step, " is not batch ", s.batch, " after ", s.epoch, " epochs of ",
              per_epoch);
}

TrainState parse_train_state(const Json& json, const std::string& where, int64_t steps_per_epoch) {
  constexpr int64_t kMax = int64_t{1} << 53;  // maximum of a count, so that sums do not overflow
  TrainState s;
  const JsonFields state(json, where), tally = state.object("tally"), seconds = state.object("seconds"),
                                       random = state.object("random");
  s.step = state.integer("step", 0, kMax), s.epoch = state.integer("epoch", 0, kMax),
  s.batch = state.integer("batch", 0, kMax);
  s.tally.samples = tally.integer("samples", 0, kMax), s.tally.loss = tally.real("loss", kLowest);
  s.tally.top5 = tally.integer("top5", 0, s.tally.samples), s.tally.top1 = tally.integer("top1", 0, s.tally.top5);
  s.seconds = {seconds.real("whole", 0), seconds.real("data", 0), seconds.real("forward", 0),
               seconds.real("backward", 0), seconds.real("optimizer", 0)};
  s.random = {random.bits("seed"), Stream(random.bits("stream")), random.bits("counter")};
  if (state.has("reported")) s.reported = state.integer("reported", 0, 1) == 1;
  if (state.has("validated")) s.validated = state.integer("validated", 0, s.step);
  if (state.has("counters")) s.counters = state.integers("counters");
  if (state.has("parameter_steps")) s.parameter_steps = state.integers("parameter_steps", s.step);
  if (state.has("best")) {
    const JsonFields best = state.object("best");
    s.best = TrainState::Best{best.integer("step", 0, s.step), score_in(best)};
  }
  if (state.has("improved")) {
    const JsonFields improved = state.object("improved");
    s.improved = TrainState::Improved{improved.integer("epoch", 0, kMax), score_in(improved)};
  }
  if (state.has("watched")) {
    const JsonFields watched = state.object("watched");
    s.watched = Watched{watched.real("best", kLowest), watched.integer("bad", 0, kMax),
                        watched.integer("cooldown", 0, kMax), watched.real("lr", 0)};
  }
  if (state.has("trained_s")) s.trained = state.real("trained_s", 0);
  if (state.has("traffic")) {
    const JsonFields traffic = state.object("traffic");
    s.traffic = {traffic.integer("bytes"), traffic.real("seconds", 0), traffic.real("exposed", 0)};
  }
  s.lengths = lengths_in(state.object("lengths"), where);
  if (steps_per_epoch > 0) check_steps(s, where, steps_per_epoch);
  return s;
}

}  // namespace ringtape
