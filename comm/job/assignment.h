#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringtape::comm {

// How far the state of a process has come. Of two states the one with more steps counts; after equally many steps the
// one that has completed fewer epochs, because what belongs to the end of an epoch may not be done.
struct Progress {
  int64_t step = -1;  // of the training; -1: it has no state
  int64_t epochs = 0;
};

// A process of an elastic job in one generation.
struct Member {
  int64_t id = 0;       // of the process; never used again
  Progress progress{};  // when the generation began
  std::string host{};   // equal for processes of one machine
  std::string self{};   // describes it
  int64_t place = 0;    // newcomers get ranks in this order
};

// What all processes agreed on: who works together from now on. A generation is such a set of processes, with ranks.
struct Assignment {
  int64_t number = 0;             // of the generation; 1: the first
  std::vector<Member> members{};  // by rank
  std::vector<int64_t> others{};  // processes that are not members, and may have come or may come
  int64_t last = 0;               // the largest id of which this or an earlier assignment took note
  int source = -1;                // the rank whose state all take; -1: none has one
  int64_t stalls = 0;   // how many generations before it failed one after another at one step, though nobody had gone
  std::string cause{};  // why the generation before it ended; one line

  std::string summary() const;  // for users: the number, how many ranks, and the cause
  std::string text() const;
  static Assignment parse(std::string_view text);  // throws CommError
};

// Cells of a line that a process has written to the store, separated by tabs. Reading throws CommError for what is not
// there, or no number.
class Cells {
 public:
  explicit Cells(std::string_view line) : rest_(line) {}
  std::string word();
  int64_t number();
  bool more() const { return rest_ && !rest_->empty(); }

 private:
  std::optional<std::string_view> rest_;
};
std::string one_line(std::string text);  // as a cell must be
std::string text_of(const Member& m);    // cells, without its id
Member member_of(int64_t id, Cells& cells);

}  // namespace ringtape::comm
