#pragma once
#include <gtest/gtest.h>

#include <string>

#include "emulation/traffic.h"

#if defined(RINGTAPE_EMULATION_BUILD)

namespace ringtape::test {

// As a page shows it: 1,024.
inline std::string thousands(uint64_t n) {
  std::string s = std::to_string(n);
  for (size_t at = s.size(); at > 3;) s.insert(at -= 3, ",");
  return s;
}

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
