#include "train/strategy/state_exchange.h"

#include <algorithm>

#include "kernels/copy.h"

namespace ringtape {

struct StateExchange::Request {
  enum Verb : int64_t { kGet, kPut, kFinish } verb;
  int64_t which = 0;
  Part part = {};
};

int64_t StateExchange::number_of(const Tensor& own) const {
  const auto found = std::ranges::find_if(held_, [&](const Held& h) { return h.own.storage() == own.storage(); });
  RT_CHECK(found != held_.end(), "a buffer that the exchange does not hold");
  return found - held_.begin();
}

// On a GPU a copy may follow a collective that was aborted: its bytes are then worth nothing.
Tensor StateExchange::on_host(const Tensor& x) const {
  Tensor out = x.copy_to(Device{});
  group_.transport().context().failure->check();
  return out;
}

// Rank 0's request, on all ranks.
StateExchange::Request StateExchange::agree(Request request) {
  const Tensor words =
      from_host(std::vector<int64_t>{request.verb, request.which, request.part.begin, request.part.end}, {4},
                group_.transport().device());
  group_.broadcast(words, 0).wait();
  const Tensor host = on_host(words);
  const auto w = host.span<int64_t>();
  return {Request::Verb(w[0]), w[1], {w[2], w[3]}};
}

Tensor StateExchange::gathered(int64_t which, Part part) {
  const auto& [held, shards] = held_[size_t(which)];
  const Tensor out({part.size()}, held.dtype(), held.device());
  shards.each_own(held, out, part.begin, [](const Tensor& own, const Tensor& to) { copy(to, own); });
  shards.gather(out, part.begin);
  return out;
}

void StateExchange::spread(int64_t which, Part part, const Tensor& x) {
  group_.broadcast(x, 0).wait();
  const auto& [held, shards] = held_[size_t(which)];
  shards.each_own(held, x, part.begin, [](const Tensor& own, const Tensor& from) {
    copy(own, from);
    own.storage()->written_by("StateExchange");
  });
}

Tensor StateExchange::get(int64_t which, Part part) {
  agree({Request::kGet, which, part});
  return on_host(gathered(which, part));
}

void StateExchange::put(int64_t which, Part part, const Tensor& x) {
  agree({Request::kPut, which, part});
  const Device device = held_[size_t(which)].own.device();
  spread(which, part, x.device() == device ? x : x.copy_to(device));
}

void StateExchange::finish() { agree({Request::kFinish}); }

void StateExchange::serve() {
  for (Request r = agree({}); r.verb != Request::kFinish; r = agree({})) {
    RT_CHECK_AS(CommError, r.which >= 0 && r.which < int64_t(held_.size()), "rank 0 asks for state ", r.which, " of ",
                held_.size());
    const Tensor& held = held_[size_t(r.which)].own;
    if (r.verb == Request::kGet) gathered(r.which, r.part);
    else spread(r.which, r.part, Tensor({r.part.size()}, held.dtype(), held.device()));
  }
}

}  // namespace ringtape
