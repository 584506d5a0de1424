// What the processes of an elastic job agreed on, as the store has it.
#include "comm/job/crew.h"
#include "tests/fuzz/target.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  try {
    const comm::Deal deal = comm::Deal::parse(input);
    require(!deal.members.empty() && deal.source >= -1 && deal.source < int(deal.members.size()));
    const std::string text = deal.text();
    require(comm::Deal::parse(text).text() == text);
  } catch (const CommError&) {
  }
}
