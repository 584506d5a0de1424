// What the processes of an elastic job agreed on, as the store has it.
#include "comm/job/membership.h"
#include "tests/fuzz/target.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  try {
    const comm::Assignment assignment = comm::Assignment::parse(input);
    require(!assignment.members.empty() && assignment.source >= -1 &&
            assignment.source < int(assignment.members.size()));
    const std::string text = assignment.text();
    require(comm::Assignment::parse(text).text() == text);
  } catch (const CommError&) {
  }
}
