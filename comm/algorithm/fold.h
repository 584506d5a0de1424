#pragma once
#include "comm/algorithm/parts.h"

namespace ringtape::comm {

// Maps any number of members to a power of two of actors: the first 2 * surplus members form pairs, and the odd member
// of a pair acts for both as actor member / 2. Each of the other members is an actor. The members that an actor
// represents are neighbours.
struct Fold {
  explicit Fold(const Team& team)
      : actors(power_below(team.size)), surplus(team.size - actors), member(team.member), paired(member < 2 * surplus) {
  }
  int member_of(int actor) const { return actor < surplus ? 2 * actor + 1 : actor + surplus; }
  int first_of(int actor) const {
    return actor < surplus ? 2 * actor : actor + surplus;
  }                                                        // first member that it represents
  bool idle() const { return paired && member % 2 == 0; }  // another member acts for this one
  int actor() const { return paired ? member / 2 : member - surplus; }
  int partner() const { return member ^ 1; }  // of this member's pair

  int actors, surplus, member;
  bool paired;
};

}  // namespace ringtape::comm
