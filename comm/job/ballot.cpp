#include "comm/job/ballot.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/check.h"

namespace ringtape::comm {

std::string Vote::text() const {
  std::string out = concat(text_of(from), "\t", int(failed), "\t", cause);
  for (const int64_t id : unreached) out += concat("\t", id);
  return out;
}

Vote Vote::parse(int64_t id, std::string_view text) {
  Cells cells(text);
  Vote out{.from = member_of(id, cells)};
  out.failed = cells.number() != 0;
  out.cause = cells.word();
  while (cells.more()) out.unreached.push_back(cells.number());
  return out;
}

const Member* Ballot::find(int64_t id) const {
  const auto at = std::ranges::find(voters, id, &Member::id);
  return at == voters.end() ? nullptr : &*at;
}

void Ballot::part(const Assignment& before) {
  const auto is_new = [&](const Member& m) {
    return std::ranges::find(before.members, m.id, &Member::id) == before.members.end();
  };
  for (;;) {
    std::erase_if(cuts, [&](const auto& cut) { return !find(cut.first.id) || !find(cut.second.id); });
    if (cuts.empty()) return;
    std::string host;
    // It has newcomers only, the hosts that it does not reach, its members, its processes.
    std::tuple<bool, size_t, ptrdiff_t, ptrdiff_t> most;
    for (const Member& m : voters) {
      if (std::ranges::find(voters, m.host, &Member::host)->id != m.id) continue;  // the first speaks for its host
      std::set<std::string> unreached;
      for (const auto& [a, b] : cuts)
        if (a.host == m.host || b.host == m.host) unreached.insert(a.host == m.host ? b.host : a.host);
      if (unreached.empty()) continue;
      const auto old = std::ranges::count_if(voters, [&](const Member& v) { return v.host == m.host && !is_new(v); });
      const std::tuple worth(old == 0, unreached.size(), -old, -std::ranges::count(voters, m.host, &Member::host));
      if (host.empty() || worth >= most) host = m.host, most = worth;
    }
    const auto& [a, b] =
        *std::ranges::find_if(cuts, [&](const auto& cut) { return cut.first.host == host || cut.second.host == host; });
    const auto& [left, stays] = a.host == host ? std::tie(a, b) : std::tie(b, a);
    const auto more = std::ranges::count(voters, host, &Member::host) - 1;
    gone.push_back(concat(left.self, more > 0 ? concat(" and ", more, " more of its host are") : " is",
                          " left out: there is no way between it and ", stays.self, ", though both reach the store"));
    std::erase_if(voters, [&](const Member& m) {
      if (m.host != host) return false;
      if (is_new(m)) unknown.push_back(m.id), --newcomers;  // it waits
      return true;
    });
  }
}

}  // namespace ringtape::comm
