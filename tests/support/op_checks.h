#pragma once
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "autograd/op_checks.h"

// Every check of every op's record, for the suites that run them.
namespace ringtape::test {

struct OpCase {
  const Op* op;
  const OpCheck* check;
};
inline std::ostream& operator<<(std::ostream& out, const OpCase& c) {
  return out << c.op->name << ' ' << c.check->name;
}

inline std::vector<OpCase> op_cases(DeviceType type) {
  std::vector<OpCase> out;
  for (const Op& op : ops())
    for (const OpCheck& check : op_checks(type)) out.push_back({&op, &check});
  return out;
}

inline std::string name_of_case(const testing::TestParamInfo<OpCase>& info) {
  return std::string(info.param.op->name) + "_" + info.param.check->name;
}

}  // namespace ringtape::test
