#include "train/weights/names.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "core/text.h"

namespace ringtape {
namespace {

bool is_below(std::string_view name, const std::string& layer) {
  return !layer.empty() && name.size() > layer.size() && name.starts_with(layer) && name[layer.size()] == '.';
}
// The first component of a name.
std::string child_of(const std::string& name) { return name.substr(0, name.find('.')); }
bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == std::string_view::npos;
}
bool may_be_absent(const std::string& name) { return name.ends_with("num_batches_tracked"); }

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The name as this project would write it.
std::string canonical(std::string name) {
  for (const char* const wrapper : {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
    replace_all(name, wrapper, "");
  replace_all(name, ".shortcut.", ".downsample.");
  return name;
}

// One place in the file where the network could be.
struct NetworkPlace {
  std::string prefix;
  std::map<std::string, std::string> children;  // names of the network's children in the file, if they differ
};

class NameFinder {
 public:
  NameFinder(const std::vector<std::string>& file, const std::vector<std::string>& network, const std::string& last)
      : network_(network), last_(last) {
    for (const std::string& name : file) {
      std::string& known = by_canonical_[canonical(name)];
      if (!known.empty()) doubles_.push_back(known == canonical(known) ? name : known);
      if (known.empty() || known != canonical(known)) known = name;
    }
    for (const std::string& name : network)
      if (const std::string child = child_of(name); std::ranges::find(children_, child) == children_.end())
        children_.push_back(child);
  }

  NamesInFile find() const {
    NamesInFile best;
    size_t most = 0;
    bool any = false;
    for (const std::string& prefix : prefixes()) {
      NamesInFile found = names_at({prefix, {}});
      const size_t score = score_of(found);
      if (any && score <= most) continue;
      any = true, most = score, best = std::move(found);
    }
    if (!has_all(best))
      for (const NetworkPlace& place : sequentials())
        if (NamesInFile found = names_at(place); has_all(found)) {
          best = std::move(found);
          break;
        }
    sort_rest(best);
    return best;
  }

 private:
  bool needed(const std::string& name) const { return !is_below(name, last_) && !may_be_absent(name); }
  size_t score_of(const NamesInFile& names) const {
    return size_t(std::ranges::count_if(names.of, [&](const auto& pair) { return needed(pair.first); }));
  }
  bool has_all(const NamesInFile& names) const {
    return std::ranges::all_of(network_, [&](const auto& name) { return !needed(name) || names.of.contains(name); });
  }

  // What is before the network's first name in the file's names.
  std::vector<std::string> prefixes() const {
    std::set<Rank> out = {rank_of("")};
    const auto first = std::ranges::find_if(network_, [&](const auto& name) { return needed(name); });
    if (first != network_.end())
      for (const auto& [name, original] : by_canonical_)
        if (name.ends_with("." + *first)) out.insert(rank_of(name.substr(0, name.size() - first->size())));
    return in_order(out);
  }
  // A network that learns comes before one that is its average, "backbone." before others, then a shorter prefix before
  // a longer one.
  using Rank = std::tuple<bool, bool, size_t, std::string>;
  static Rank rank_of(const std::string& prefix) {
    const auto has = [&](const char* word) { return prefix.find(word) != std::string::npos; };
    const bool average = has("momentum") || has("encoder_k") || has("target") || has("teacher") || has("ema.") ||
                         has("ema_") || has("averag");
    return {average, !prefix.empty() && prefix != "backbone.", prefix.size(), prefix};
  }
  static std::vector<std::string> in_order(const std::set<Rank>& ranks) {
    constexpr size_t kMax = 1000;  // no file has more networks in it
    std::vector<std::string> out;
    for (const auto& [average, other, size, prefix] : ranks)
      if (out.size() < kMax) out.push_back(prefix);
    return out;
  }

  // Places where the children are numbered: those numbers that have tensors, in their order.
  std::vector<NetworkPlace> sequentials() const {
    std::map<std::string, std::set<int>> numbers;  // by prefix
    constexpr int kDeepest = 16;                   // components of a name
    for (const auto& [name, original] : by_canonical_)
      for (size_t at = 0, end = name.find('.'), depth = 0; end != std::string::npos && depth < kDeepest;
           at = end + 1, end = name.find('.', at), ++depth)
        if (const std::string part = name.substr(at, end - at); is_number(part))
          numbers[name.substr(0, at)].insert(std::stoi(part));
    std::set<Rank> ranks;
    for (const auto& [prefix, all] : numbers) ranks.insert(rank_of(prefix));
    std::vector<NetworkPlace> out;
    for (const std::string& prefix : in_order(ranks)) {
      NetworkPlace place{.prefix = prefix, .children = {}};
      auto child = children_.begin();
      for (const int number : numbers[prefix])
        if (child != children_.end()) place.children[*child++] = std::to_string(number);
      out.push_back(std::move(place));
    }
    return out;
  }

  NamesInFile names_at(const NetworkPlace& place) const {
    NamesInFile out{.of = {}, .prefix = place.prefix, .unknown = {}, .rest = {}};
    for (const std::string& name : network_) {
      const std::string child = child_of(name);
      const auto other = place.children.find(child);
      const std::string own =
          place.prefix + (other == place.children.end() ? name : other->second + name.substr(child.size()));
      if (const auto found = by_canonical_.find(own); found != by_canonical_.end()) out.of[name] = found->second;
    }
    if (!last_.empty()) find_last(place.prefix, out);
    return out;
  }
  // The last layer by another name, with the network or beside it, if it is not there by its own: one that has all of
  // its tensors.
  void find_last(const std::string& prefix, NamesInFile& out) const {
    std::vector<std::string> wanted;
    for (const std::string& name : network_)
      if (is_below(name, last_)) wanted.push_back(name);
    if (std::ranges::any_of(wanted, [&](const std::string& name) { return out.of.contains(name); })) return;
    std::string beside = prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1);
    beside.erase(beside.rfind('.') == std::string::npos ? 0 : beside.rfind('.') + 1);
    for (const std::string& at : {prefix, beside})
      for (const char* const layer : kLastLayers) {
        std::map<std::string, std::string> found;
        for (const std::string& name : wanted)
          if (const auto own = by_canonical_.find(at + layer + name.substr(last_.size())); own != by_canonical_.end())
            found.emplace(name, own->second);
        if (found.size() == wanted.size()) return out.of.merge(found);
      }
  }

  void sort_rest(NamesInFile& out) const {
    std::set<std::string> used;
    for (const auto& [name, own] : out.of) used.insert(own);
    for (const auto& [name, original] : by_canonical_) {
      if (used.contains(original)) continue;
      const bool inside = name.starts_with(out.prefix);
      const std::string child = inside ? child_of(name.substr(out.prefix.size())) : "";
      const bool of_network = child != last_ && (std::ranges::find(children_, child) != children_.end() ||
                                                 (is_number(child) && !is_number(last_)));
      (inside && of_network ? out.unknown : out.rest).push_back(original);
    }
    out.rest.insert(out.rest.end(), doubles_.begin(), doubles_.end());
  }

  std::map<std::string, std::string> by_canonical_;  // the file's names
  std::vector<std::string> doubles_;                 // of which another one has the same canonical name
  const std::vector<std::string>& network_;
  const std::string& last_;
  std::vector<std::string> children_;  // in their order
};

}  // namespace

NamesInFile find_names(const std::vector<std::string>& file, const std::vector<std::string>& network,
                       const std::string& last) {
  return NameFinder(file, network, last).find();
}

std::string summary_of(const std::vector<std::string>& names, const std::string& prefix) {
  std::map<std::string, size_t> groups;
  for (const std::string& name : names) {
    size_t same = 0;  // up to the last dot before which both are equal
    for (size_t i = 0; i < std::min(name.size(), prefix.size()) && name[i] == prefix[i]; ++i)
      if (name[i] == '.') same = i + 1;
    const size_t dot = name.find('.', same);
    ++groups[dot == std::string::npos ? name : name.substr(0, dot) + ".*"];
  }
  constexpr size_t kMax = 8, kLongest = 100;
  std::string out;
  size_t shown = 0;
  for (const auto& [group, count] : groups) {
    if (shown++ == kMax) return concat(out, " and ", groups.size() - kMax, " more");
    out += concat(out.empty() ? "" : ", ", group.substr(0, kLongest), count > 1 ? concat(" (", count, ")") : "");
  }
  return out;
}

}  // namespace ringtape
