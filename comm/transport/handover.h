#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/transport.h"

namespace ringtape::comm {

// An object that the ranks of a group share if they are threads of one process: rank 0 creates it, and the group's
// store gives its number to the others.
template <class Board> class Handover {
 public:
  // For the constructor of a transport, after its begin().
  static std::shared_ptr<Board> meet(Transport& t) {
    static Handover all;
    Store& store = *t.context().store;
    if (t.rank() == 0) {
      auto board = std::make_shared<Board>(t.size());
      store.set("threads", std::to_string(all.put(board)));
      return board;
    }
    for (Wait wait(t, 0);; wait.pause())
      if (const auto number = store.get("threads")) return all.take(std::stoll(*number), t);
  }

 private:
  int64_t put(std::shared_ptr<Board> board) {
    const std::lock_guard lock(mutex_);
    const int to_come = board->size - 1;
    if (to_come > 0) boards_[++last_] = {std::move(board), to_come};
    return last_;
  }
  std::shared_ptr<Board> take(int64_t number, const Transport& t) {
    const std::lock_guard lock(mutex_);
    const auto it = boards_.find(number);
    RT_CHECK_AS(CommError, it != boards_.end(), t.name(),
                ": the ranks of this group must be threads of one process, "
                "but are processes; use ",
                t.device().type == DeviceType::cpu ? "shm" : "ipc");
    std::shared_ptr<Board> board = it->second.first;
    if (--it->second.second == 0) boards_.erase(it);  // taken by the last rank
    return board;
  }

  std::mutex mutex_;
  std::map<int64_t, std::pair<std::shared_ptr<Board>, int>> boards_;
  int64_t last_ = 0;
};

}  // namespace ringtape::comm
