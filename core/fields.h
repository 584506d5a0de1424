#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace ringtape {

// The allowed values of a number.
struct FieldRange {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low is excluded
  bool below_high = false;  // high is excluded
};

inline constexpr double kMaxCount = 1e9;
inline constexpr FieldRange kPositive{1, kMaxCount}, kCount{0, kMaxCount}, kReal{.low = 0},
    kAboveZero{.low = 0, .above_low = true}, kFraction{.low = 0, .high = 1, .below_high = true}, kProbability{0, 1};

enum class FieldScope : uint8_t {
  training,    // part of the recipe: recorded with a run, the same on all ranks
  weights,     // the same, and recorded with the weights, which `evaluate` needs it for
  rank,        // recorded, but ranks may differ
  invocation,  // for one call of the program; not recorded
};

// Properties of a field apart from its name and value.
struct FieldInfo {
  const char* help = "";  // one line that is clear without context
  const char* unit = "";  // placeholder for the value in --help: N, X, P, FILE; empty: a switch
  FieldRange range = {};  // for numbers
  std::vector<std::string> (*choices)() = nullptr;  // for texts; null: any
  const char* automatic = nullptr;  // meaning of the default if it stands for "not given" (it may be out of range)
  const char* unset = nullptr;      // the text of the default in files of earlier versions
  FieldScope scope = FieldScope::training;
  bool may_change = false;   // on resume
  bool evaluates = false;    // `evaluate` accepts it, as it does all of FieldScope::weights
  bool selects = false;      // names a component, whose own settings follow
  bool with_labels = false;  // has no effect where no labels are learnt
};

using FieldRef = std::variant<std::string*, int64_t*, double*, bool*>;

// Walks the fields of settings, as nn::Visitor walks parameters. Each struct of settings lists its fields once:
//   void visit(Fields& f, Lars::Options& o) { f("lars-eta", o.eta, {.help = "...", .unit = "X", .range = kReal}); }
// Flags, --help, configuration files, the comparison between ranks and the changes allowed on resume use that list.
class Fields {
 public:
  virtual ~Fields() = default;
  virtual void field(const char* name, FieldRef value, const FieldInfo& info) = 0;
  template <class T> void operator()(const char* name, T& value, const FieldInfo& info) { field(name, &value, info); }
};

std::string field_text(const FieldRef& value);

// What was expected if text is not such a value, is out of range or not a choice; else empty.
std::string refusal_of(const FieldRef& value, const FieldInfo& info, const std::string& text);
// The same; other text sets the field.
[[nodiscard]] std::string set_field(const FieldRef& value, const FieldInfo& info, const std::string& text);

}  // namespace ringtape
