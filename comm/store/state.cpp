#include "comm/store/state.h"

#include "comm/store/number.h"

namespace ringtape::comm {

using Type = Frame::Type;

void StoreState::handle(Client client, const Frame& request) {
  const auto reply = [&](int64_t number = 0, std::vector<std::string> fields = {}) {
    send_(client, {Type::reply, request.request, number, std::move(fields)});
  };
  const auto refuse = [&](const std::string& why) { send_(client, {Type::error, request.request, 0, {why}}); };
  const auto& fields = request.fields;
  switch (request.type) {
    case Type::set: set(fields[0], fields[1]); return reply();
    case Type::set_once:
      if (!values_.count(fields[0])) set(fields[0], fields[1]);
      return reply(0, {values_[fields[0]]});
    case Type::get: {
      const auto it = values_.find(fields[0]);
      return it == values_.end() ? reply(0) : reply(1, {it->second});
    }
    case Type::wait: return wait({client, request.request}, fields);
    case Type::cancel: return forget({client, uint32_t(request.number)});
    case Type::add:
      try {
        const auto it = values_.find(fields[0]);
        const int64_t sum = sum_of(fields[0], it == values_.end() ? "" : it->second, request.number);
        set(fields[0], std::to_string(sum));
        return reply(sum);
      } catch (const CommError& e) {
        return refuse(e.what());
      }
    case Type::erase: values_.erase(fields[0]); return reply();
    case Type::will: wills_[client].emplace_back(fields[0], fields[1]); return reply();
    case Type::beat: return send_(client, {Type::beat});
    default: return refuse("store: not a request");
  }
}

void StoreState::left(Client client, const std::string& what) {
  if (auto wills = wills_.extract(client); wills && !what.empty())
    for (const auto& [key, who] : wills.mapped())
      if (!values_.count(key)) set(key, concat(who, ' ', what));
  const auto next = [&] { return waits_.lower_bound({client, 0}); };
  for (auto it = next(); it != waits_.end() && it->first.first == client; it = next()) forget(Waiting(it->first));
}

void StoreState::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  for (auto it = waiters_.find(key); it != waiters_.end(); it = waiters_.find(key)) {
    const Waiting waiting = it->second;
    forget(waiting);
    send_(waiting.first, {Type::reply, waiting.second, 1, {key, value}});
  }
}

void StoreState::wait(const Waiting& waiting, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (const auto it = values_.find(key); it != values_.end())
      return send_(waiting.first, {Type::reply, waiting.second, 1, {key, it->second}});
  forget(waiting);
  waits_[waiting] = keys;
  for (const std::string& key : keys) waiters_.emplace(key, waiting);
}

void StoreState::forget(const Waiting& waiting) {
  const auto wait = waits_.extract(waiting);
  if (!wait) return;
  for (const std::string& key : wait.mapped()) {
    const auto [begin, end] = waiters_.equal_range(key);
    for (auto it = begin; it != end;) it = it->second == waiting ? waiters_.erase(it) : std::next(it);
  }
}

}  // namespace ringtape::comm
