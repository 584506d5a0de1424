#pragma once
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

// Any number of members as a power of two: the first 2 * surplus of them pair up, and the odd one
// of a pair stands for both as actor member / 2; the others follow as actors of their own. The
// members that an actor stands for are neighbours.
struct Fold {
  explicit Fold(const Team& team)
      : actors(power_below(team.size)), surplus(team.size - actors), member(team.member), paired(member < 2 * surplus) {
  }
  int member_of(int actor) const { return actor < surplus ? 2 * actor + 1 : actor + surplus; }
  int first_of(int actor) const {
    return actor < surplus ? 2 * actor : actor + surplus;
  }                                                        // of the members that it stands for
  bool idle() const { return paired && member % 2 == 0; }  // another stands for this member
  int actor() const { return paired ? member / 2 : member - surplus; }
  int partner() const { return member ^ 1; }                                               // in the pair

  int actors, surplus, member;
  bool paired;
};

}  // namespace ringtape::comm
