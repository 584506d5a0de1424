#include "comm/launch/elastic.h"

#include <thread>
#include <utility>

#include "comm/job/membership.h"
#include "comm/store/tcp_store.h"
#include "core/log.h"
#include "core/parse.h"

namespace ringtape::comm {

static std::string text_of(const std::vector<std::string>& words, char end = kWordEnd) {
  std::string out;
  for (const std::string& word : words) {
    RT_CHECK_AS(UsageError, word.find(kWordEnd) == std::string::npos,
                "launch: the command of an elastic job must not contain the character with code 31");
    out += (&word == &words.front() ? "" : std::string(1, end)) + word;
  }
  return out;
}

// As typed.
static std::string shown(std::vector<std::string> words) {
  if (words.front().empty()) words.erase(words.begin());
  return text_of(words, ' ');
}

int begin_job(Store& store, const Launch& launch) {
  const std::string mine = text_of(launch.command);
  if (!store.get(kCommandKey)) store.set_once(kRanksKey, std::to_string(launch.ranks()));
  const std::string set = store.set_once(kCommandKey, mine);
  RT_CHECK_AS(UsageError, set == mine, "--join: the job's command is '", shown(split_text(set, kWordEnd)), "', not '",
              shown(launch.command), "'; leave out what follows -- to run the job's");
  const int taken = launch.ranks();
  return int(store.add(kSlotsKey, taken)) - taken;
}

void join_job(Launch& launch, Seconds patience) {
  const Deadline deadline(patience);
  const std::string where = concat(launch.master_addr, ":", launch.master_port);
  bool told = false;
  const auto store = tcp_store({launch.master_addr, launch.master_port, launch.token}, deadline, Seconds(60),
                               [&](const std::string& why) {
                                 if (!std::exchange(told, true))
                                   log_info("waiting for the job's store at ", where, ": ", why);
                               });
  if (launch.command.empty()) {
    const std::string keys[] = {kCommandKey};
    auto command = store->wait_any(keys, Deadline(std::min(deadline.left(), Seconds(1))));
    if (!command) log_info("waiting for the launcher that gives the job at ", where, " its command");
    if (!command) command = store->wait_any(keys, deadline);
    RT_CHECK_AS(UsageError, command, "--join ", where, ": the job has no command; give this one a COMMAND after --");
    launch.command = split_text(command->value, kWordEnd);
  }
  launch.base = begin_job(*store, launch);
}

void await_latecomers(Store& store, Seconds patience) {
  constexpr Seconds kLook(0.05);
  if (!store.get(kDoneKey)) return;
  for (const Deadline deadline(patience); Membership::arrivals(store) < store.add(kSlotsKey, 0) && !deadline.passed();)
    std::this_thread::sleep_for(kLook);
}

}  // namespace ringtape::comm
