#include "comm/job/assignment.h"

#include <algorithm>

#include "core/check.h"
#include "core/parse.h"

namespace ringtape::comm {

constexpr const char* kDamaged = "the store has a damaged record of the job";

// Takes what is before the next `end` from the text; nullopt: the text has ended.
static std::optional<std::string_view> take(std::optional<std::string_view>& text, char end) {
  if (!text) return std::nullopt;
  const size_t at = text->find(end);
  const std::string_view out = text->substr(0, at);
  text = at == text->npos ? std::nullopt : std::optional(text->substr(at + 1));
  return out;
}

std::string Cells::word() {
  const auto out = take(rest_, '\t');
  RT_CHECK_AS(CommError, out, kDamaged);
  return std::string(*out);
}

int64_t Cells::number() {
  const auto out = parse_number<int64_t>(word());
  RT_CHECK_AS(CommError, out, kDamaged);
  return *out;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

std::string text_of(const Member& m) {
  return concat(m.progress.step, "\t", m.progress.epochs, "\t", m.place, "\t", m.host, "\t", m.self);
}

Member member_of(int64_t id, Cells& cells) {
  Member out{.id = id};
  out.progress = {cells.number(), cells.number()};
  out.place = cells.number();
  out.host = cells.word(), out.self = cells.word();
  return out;
}

std::string Assignment::summary() const {
  return concat("generation ", number, ": ", members.size(), members.size() == 1 ? " rank" : " ranks",
                cause.empty() ? "" : "; ", cause);
}

std::string Assignment::text() const {
  std::string out = concat(number, "\t", last, "\t", source, "\t", stalls, "\t", one_line(cause), "\n");
  for (const int64_t id : others) out += concat(id, "\t");
  for (const Member& m : members) out += concat("\n", m.id, "\t", text_of(m));
  return out;
}

Assignment Assignment::parse(std::string_view text) {
  std::optional<std::string_view> lines = text;
  Cells head(*take(lines, '\n'));
  Assignment out{.number = head.number(), .last = head.number()};
  const int64_t source = head.number();
  out.stalls = head.number();
  out.cause = head.word();
  const auto others = take(lines, '\n');
  RT_CHECK_AS(CommError, others, kDamaged);
  for (Cells ids(*others); ids.more();) out.others.push_back(ids.number());
  while (const auto line = take(lines, '\n')) {
    Cells cells(*line);
    const int64_t id = cells.number();
    out.members.push_back(member_of(id, cells));
  }
  RT_CHECK_AS(CommError, !out.members.empty() && source >= -1 && source < int64_t(out.members.size()), kDamaged);
  out.source = int(source);
  return out;
}

}  // namespace ringtape::comm
