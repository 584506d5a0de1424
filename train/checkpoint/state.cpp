#include "train/checkpoint/state.h"

#include <nlohmann/json.hpp>

namespace ringtape {

using Json = nlohmann::ordered_json;

// Numbers are written so that they read back as the same bits.
Json to_json(const TrainState& s) {
  Json out{{"step", s.step},
           {"epoch", s.epoch},
           {"batch", s.batch},
           {"tally", {{"samples", s.tally.samples}, {"top1", s.tally.top1}, {"top5", s.tally.top5}, {"loss", s.tally.loss}}},
           {"seconds",
            {{"whole", s.seconds.whole},
             {"data", s.seconds.data},
             {"forward", s.seconds.forward},
             {"backward", s.seconds.backward},
             {"optimizer", s.seconds.optimizer}}},
           {"random", {{"seed", s.random.seed}, {"stream", uint64_t(s.random.stream)}, {"counter", s.random.counter}}}};
  if (s.traffic.bytes > 0) out["traffic"] = {{"bytes", s.traffic.bytes}, {"seconds", s.traffic.seconds}, {"exposed", s.traffic.exposed}};
  if (!s.counters.empty()) out["counters"] = s.counters;
  if (!s.parameter_steps.empty()) out["parameter_steps"] = s.parameter_steps;
  if (s.best) out["best"] = {{"step", s.best->step}, {"top1", s.best->top1}};
  out["lengths"] = s.lengths;
  return out;
}

TrainState parse_train_state(const Json& json) {
  TrainState s;
  try {
    json.at("step").get_to(s.step), json.at("epoch").get_to(s.epoch), json.at("batch").get_to(s.batch);
    const Json &tally = json.at("tally"), &seconds = json.at("seconds"), &random = json.at("random");
    tally.at("samples").get_to(s.tally.samples), tally.at("loss").get_to(s.tally.loss);
    tally.at("top1").get_to(s.tally.top1), tally.at("top5").get_to(s.tally.top5);
    seconds.at("whole").get_to(s.seconds.whole), seconds.at("data").get_to(s.seconds.data);
    seconds.at("forward").get_to(s.seconds.forward), seconds.at("backward").get_to(s.seconds.backward);
    seconds.at("optimizer").get_to(s.seconds.optimizer);
    s.random = {random.at("seed").get<uint64_t>(), Stream(random.at("stream").get<uint64_t>()), random.at("counter").get<uint64_t>()};
    if (const auto counters = json.find("counters"); counters != json.end()) counters->get_to(s.counters);
    if (const auto own = json.find("parameter_steps"); own != json.end()) own->get_to(s.parameter_steps);
    if (const auto best = json.find("best"); best != json.end())
      s.best = TrainState::Best{best->at("step").get<int64_t>(), best->at("top1").get<double>()};
    if (const auto traffic = json.find("traffic"); traffic != json.end())
      s.traffic = {traffic->at("bytes").get<int64_t>(), traffic->at("seconds").get<double>(), traffic->at("exposed").get<double>()};
    json.at("lengths").get_to(s.lengths);
  } catch (const Json::exception& e) {
    detail::fail<FormatError>("not the state of a training: ", e.what());
  }
  return s;
}

}  // namespace ringtape
