#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace ringtape::cuda {

// Which engine of cuDNN was the quickest for a convolution, and whether a residual block is computed fused. Measured
// once and kept in a file, so that later runs choose the same, and their results have the same bits. A problem is a
// text that names all that the choice depends on; an engine is one, too. Both are without tabs and line breaks.
// Thread-safe; several processes may use one file.
class PlanChoices {
 public:
  explicit PlanChoices(std::string path);  // empty: in memory alone

  std::optional<std::string> find(const std::string& problem);
  // Keeps a measured engine, and returns the one to use: a choice that this or another process kept before stays.
  std::string keep(const std::string& problem, const std::string& engine);
  void replace(const std::string& problem, const std::string& engine);  // whatever was kept before

 private:
  std::string put(const std::string& problem, const std::string& engine, bool replaces);
  void read();
  void write();
  void give_up(const std::string& reason);  // of the file; one warning

  std::mutex mutex_;
  std::string path_;
  std::map<std::string, std::string> engines_;  // by problem
};

// Those of this process, in the file that RINGTAPE_CONV_PLANS names; null: nothing is to be measured.
PlanChoices* plan_choices();

}  // namespace ringtape::cuda
