#pragma once
#include <map>
#include <string>

#include "kernels/copy.h"
#include "tests/support/support.h"
#include "train/loop/step.h"

// What trainings leave, compared by bytes.
namespace ringtape::test {

using Left = std::map<std::string, Tensor>;  // by name

inline Tensor copy_of(const Tensor& x) {
  Tensor out(x.shape(), x.dtype());
  copy(out, x.detach());
  return out;
}

// Adds the tensors of a checkpoint; on rank 0, within Step::exchange().
inline void add_files(Left& left, const Step& step) {
  const auto add = [&](const char* kind, const std::vector<FileTensor>& tensors) {
    for (const FileTensor& t : tensors) left.emplace(kind + t.name, copy_of(t.get({0, t.rows()})));
  };
  add("state ", step.state()), add("average ", step.average()), add("file ", step.weights());
}

// Throws CommError, beginning with `what`, unless both have the same names and bytes.
inline void expect_same(const Left& whole, const Left& shared, const std::string& what) {
  RT_CHECK_AS(CommError, whole.size() == shared.size(), what, ": other tensors");
  for (const auto& [name, tensor] : whole)
    RT_CHECK_AS(CommError, same_bytes(tensor, shared.at(name)), what, ": ", name, " has other bytes");
}

}  // namespace ringtape::test
