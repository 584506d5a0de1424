#pragma once
#include <gtest/gtest.h>

#include <string>

#include "emulation/traffic.h"

#if defined(RINGTAPE_EMULATION_BUILD)

namespace ringtape::test {

// Products by tensor cores, whose accesses to memory use this share of their sectors, without a conflict of banks.
inline emulation::Traffic expect_whole_sectors(const std::string& what, const std::function<void()>& f,
                                               double share = 0.9) {
  const emulation::Traffic t = emulation::traffic_of(f);
  EXPECT_GE(double(t.bytes), share * double(t.sectors * emulation::Traffic::kSector)) << what;
  EXPECT_EQ(t.conflicts, 0u) << what << ", of " << t.wavefronts;
  EXPECT_GT(t.products, 0u) << what;
  return t;
}

}  // namespace ringtape::test

#endif
