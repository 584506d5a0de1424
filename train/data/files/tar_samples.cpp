#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "core/check.h"
#include "core/printable.h"
#include "train/data/files/tar_index.h"
#include "train/data/image/image_file.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

// Where the key of a name ends: at the first dot after the last slash. None if there is no such dot, or nothing before.
size_t key_length(std::string_view name) {
  const size_t slash = name.rfind('/'), begin = slash == name.npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  return dot == begin ? name.npos : dot;
}

enum class Role { image, cls, json, other };

Role role_of(std::string_view ending) {  // with its dot
  std::string lower(ending);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (lower == ".cls") return Role::cls;
  if (lower == ".json") return Role::json;
  return lower.find('.', 1) == lower.npos && is_image_path("x" + lower) ? Role::image : Role::other;
}

constexpr int64_t kLargestLabel = INT32_MAX, kMaxLabelBytes = 1 << 20;

}  // namespace

// Adds a member that is an image or a label.
static void add_member(TarSample& sample, const TarIndex& index, size_t i, Role role, const std::string& path) {
  const TarMember& member = index.members[i];
  if (role == Role::image) {
    RT_CHECK_AS(FormatError, sample.image < 0, path, ": the sample '", printable(sample.key), "' has two images, '",
                printable(index.members[size_t(std::max<int64_t>(sample.image, 0))].name), "' and '",
                printable(member.name), "'");
    sample.image = int64_t(i);
  } else if (role == Role::cls || sample.label < 0) {
    RT_CHECK_AS(FormatError, member.size <= kMaxLabelBytes, path, ": '", printable(member.name), "' has ", member.size,
                " bytes; a label has at most ", kMaxLabelBytes);
    sample.label = int64_t(i);
  }
}

TarSamples tar_samples(const TarIndex& index, const std::string& path) {
  TarSamples out;
  std::unordered_set<std::string> keys;
  TarSample now;
  bool open = false;
  int64_t members = 0, others = 0;  // of the sample
  std::string dotted;               // the first of them
  const auto finish = [&] {
    out.unused += now.image < 0 ? members : others;
    if (now.image < 0 && out.dotted.empty()) out.dotted = dotted;
    if (open && now.image >= 0) out.samples.push_back(std::move(now));
    now = {}, members = others = 0, dotted.clear();
  };
  for (size_t i = 0; i < index.members.size(); ++i) {
    const std::string_view name = index.members[i].name;
    const size_t length = key_length(name);
    if (length == name.npos) {
      ++out.unused;
      continue;
    }
    const std::string_view key = name.substr(0, length);
    if (!open || key != now.key) {
      finish();
      open = true, now.key = key;
      RT_CHECK_AS(FormatError, keys.insert(now.key).second, path, ": the members of the sample '", printable(key),
                  "' do not stand together; make the archive anew, with tar --sort=name");
    }
    const Role role = role_of(name.substr(length));
    ++members;
    if (role != Role::other) {
      add_member(now, index, i, role, path);
    } else {
      ++others;
      if (dotted.empty() && is_image_path(std::string(name))) dotted = name;
    }
  }
  finish();
  return out;
}

int64_t tar_label(const TarMember& member, std::string_view content, const std::string& where) {
  int64_t label = -1;
  const std::string_view name = member.name;
  const bool json = role_of(name.substr(std::min(key_length(name), name.size()))) == Role::json;
  if (json) {
    const Json value = parse_json(content, where);
    const Json* const found = value.find("label");
    if (!found) return -1;
    if (found->is_uint64()) label = int64_t(std::min<uint64_t>(found->get<uint64_t>(), INT64_MAX));
  } else {
    while (!content.empty() && std::isspace(static_cast<unsigned char>(content.front()))) content.remove_prefix(1);
    while (!content.empty() && std::isspace(static_cast<unsigned char>(content.back()))) content.remove_suffix(1);
    constexpr size_t kMaxDigits = 10;
    const bool digits = !content.empty() && content.size() <= kMaxDigits &&
                        std::all_of(content.begin(), content.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) label = std::stoll(std::string(content));
  }
  RT_CHECK_AS(FormatError, label >= 0 && label <= kLargestLabel, where,
              ": no label; expected a whole number from 0 to ", kLargestLabel, json ? " as \"label\"" : "");
  return label;
}

}  // namespace ringtape
