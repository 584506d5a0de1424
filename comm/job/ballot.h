#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/job/assignment.h"

namespace ringtape::comm {

// What a process says of itself, whether the generation failed, why, and which members it does not reach.
struct Vote {
  Member from;
  bool failed = false;
  std::string cause{};
  std::vector<int64_t> unreached{};

  std::string text() const;
  static Vote parse(int64_t id, std::string_view text);  // throws CommError
};

// All votes for a generation, as one process sees them.
struct Ballot {
  std::vector<Member> voters;     // members of the last generation in the order of their ranks, then others:
  int newcomers = 0;              // so many
  std::vector<Member> missing;    // members that have neither voted nor gone
  std::vector<std::string> gone;  // what happened to members
  std::vector<int64_t> unknown;   // others that have not voted
  bool failed = false;            // as a member says
  std::string cause;              // of this; the first member's
  std::vector<std::pair<Member, Member>> cuts;  // voters, the first of which does not reach the other
  int64_t last = 0;

  const Member* find(int64_t id) const;
  void part(const Assignment& before);  // leaves out hosts until all that are left reach each other
};

}  // namespace ringtape::comm
