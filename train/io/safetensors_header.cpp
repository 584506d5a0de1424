#include "train/io/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "core/printable.h"
#include "core/shape.h"
#include "train/io/json.h"
#include "train/io/json_events.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

// Types of the format that tensors here do not have, with their bits.
constexpr std::pair<const char*, uint64_t> kOtherTypes[] = {
    {"I8", 8},          {"U16", 16},    {"I16", 16},    {"U32", 32},    {"U64", 64},
    {"C64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

std::string known_types() {
  std::string out;
  for (const char* name : kTypeNames) out += concat(out.empty() ? "" : " ", name);
  return out;
}

// Handles the header while it is parsed, without building a tree. Rejects what JSON permits but the format does not:
// deep nesting, and repeated names within an entry or the metadata. Repeated names of tensors are found at the end.
class HeaderReader : public JsonEvents {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}
  SafetensorsHeader take() { return std::move(out_); }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return scalar(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool number_unsigned(uint64_t value) override {
    if (!in_list_) return scalar(std::to_string(value));
    RT_CHECK_AS(FormatError, numbers_.size() < size_t(kMaxRank), path_, ": tensor '", printable_name(entry_.name),
                "' has more numbers in its ", key_, " than it could have axes; at most ", kMaxRank, " are supported");
    numbers_.push_back(value);
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      count_metadata(value);
      out_.metadata[key_] = std::move(value);
    } else if (depth_ == 2 && key_ == "dtype") {
      take_dtype(value);
    } else {
      scalar(Json(value.substr(0, 100)).text());
    }
    return true;
  }

  bool start_object() override {
    RT_CHECK_AS(FormatError, depth_ < kDeepest, path_, ": header nested too deep");
    if (depth_ == 2 || in_list_) scalar("an object");
    if (++depth_ == 2) entry_ = TensorEntry(), entry_.name = key_, has_dtype_ = has_shape_ = has_offsets_ = false;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) finish_entry();
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ == 1) {
      in_metadata_ = value == "__metadata__";
      RT_CHECK_AS(FormatError, !in_metadata_ || !has_metadata_, path_, ": the header has '", printable_name(value),
                  "' twice");
      has_metadata_ = has_metadata_ || in_metadata_;
    } else if (depth_ == 2 && in_metadata_) {
      count_metadata(value);
      RT_CHECK_AS(FormatError, out_.metadata.emplace(value, "").second, path_, ": the header has '",
                  printable_name(value), "' twice");
    } else if (depth_ == 2) {
      bool* const had = value == "dtype"          ? &has_dtype_
                        : value == "shape"        ? &has_shape_
                        : value == "data_offsets" ? &has_offsets_
                                                  : nullptr;
      RT_CHECK_AS(FormatError, !had || !*had, path_, ": the header has '", printable_name(value), "' twice");
      if (had) *had = true;
    }
    if (depth_ <= 2) key_ = std::move(value);
    return true;
  }
  bool start_list() override {
    RT_CHECK_AS(FormatError, depth_ < kDeepest, path_, ": header nested too deep");
    if (depth_ == 2 && !in_metadata_ && (key_ == "shape" || key_ == "data_offsets")) numbers_.clear(), in_list_ = true;
    else scalar("a list");
    ++depth_;
    return true;
  }
  bool end_list() override {
    if (--depth_ != 2 || !in_list_) return true;
    in_list_ = false;
    if (key_ == "shape") {
      sizes_ = numbers_;
    } else {
      RT_CHECK_AS(FormatError, numbers_.size() == 2, path_, ": tensor '", printable_name(entry_.name),
                  "': data_offsets must be two numbers");
      entry_.begin = numbers_[0], entry_.end = numbers_[1];
    }
    return true;
  }
  bool error(const std::string& reason) override {
    detail::fail<FormatError>({path_, ": the header is not valid JSON: ", printable(reason.substr(0, 300))});
  }

 private:
  static constexpr int kDeepest = 5;

  // A value of an unexpected type, which throws, or one that is ignored.
  bool scalar(const std::string& text) {
    RT_CHECK_AS(FormatError, !in_list_, path_, ": tensor '", printable_name(entry_.name), "': ", key_,
                " must be a list of whole numbers, got ", printable_name(text), " in it");
    RT_CHECK_AS(FormatError, depth_ > 2 || !in_metadata_, path_, ": __metadata__ must map strings to strings");
    RT_CHECK_AS(FormatError, depth_ != 1, path_, ": tensor '", printable_name(key_), "' is not described by an object");
    if (depth_ != 2) return true;
    RT_CHECK_AS(FormatError, key_ != "dtype", path_, ": tensor '", printable_name(entry_.name), "' has dtype ",
                printable_name(text), "; known are ", known_types());
    RT_CHECK_AS(FormatError, key_ != "shape" && key_ != "data_offsets", path_, ": tensor '",
                printable_name(entry_.name), "': ", key_, " must be a list of whole numbers, got ",
                printable_name(text));
    return true;
  }
  void take_dtype(const std::string& name) {
    const auto found = std::find(kTypeNames.begin(), kTypeNames.end(), name);
    if (found != kTypeNames.end()) {
      entry_.dtype = DType(found - kTypeNames.begin());
      bits_ = 8 * size_of(entry_.dtype);
      return;
    }
    const auto other = std::ranges::find(kOtherTypes, name, [](const auto& type) { return type.first; });
    const std::string problem = concat("has dtype \"", printable_name(name), "\"; known are ", known_types());
    RT_CHECK_AS(FormatError, other != std::end(kOtherTypes), path_, ": tensor '", printable_name(entry_.name), "' ",
                problem);
    entry_.problem = problem, bits_ = other->second;
  }
  void count_metadata(const std::string& text) {
    metadata_bytes_ += text.size();
    RT_CHECK_AS(FormatError, metadata_bytes_ <= kLargestMetadata, path_, ": more than ", kLargestMetadata,
                " bytes of __metadata__");
  }
  void finish_entry() {
    const auto check = [&](bool has, const char* what) {
      RT_CHECK_AS(FormatError, has, path_, ": tensor '", printable_name(entry_.name), "' has no ", what);
    };
    check(has_dtype_, "dtype"), check(has_shape_, "shape"), check(has_offsets_, "data_offsets");
    const std::optional<uint64_t> elements = declared_elements(sizes_);
    const uint64_t bytes = entry_.end - entry_.begin;
    const bool fits =
        elements && *elements / 8 * bits_ + *elements % 8 * bits_ / 8 == bytes && *elements % 8 * bits_ % 8 == 0;
    RT_CHECK_AS(FormatError, entry_.end < entry_.begin || fits, path_, ": tensor '", printable_name(entry_.name),
                "' takes ", bytes, " bytes, which is not what its shape and dtype need");
    entry_.shape.assign(sizes_.begin(), sizes_.end());
    RT_CHECK_AS(FormatError, out_.tensors.size() < kMaxTensors, path_, ": more than ", kMaxTensors, " tensors");
    out_.tensors.push_back(std::move(entry_));
  }

  const std::string& path_;
  SafetensorsHeader out_;
  int depth_ = 0;
  std::string key_;
  bool in_metadata_ = false, has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  TensorEntry entry_;
  uint64_t bits_ = 0;  // of an element
  std::vector<uint64_t> numbers_, sizes_;
  bool in_list_ = false;  // inside the list that fills numbers_
  uint64_t metadata_bytes_ = 0;
};

// Entries must have different names, follow each other without holes and end at the end of the file.
void check_layout(const std::string& path, std::vector<TensorEntry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != entries.end())
    detail::fail<FormatError>({path, ": the header has '", printable_name(twice->name), "' twice"});
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const TensorEntry& entry : entries) {
    RT_CHECK_AS(FormatError, entry.begin == at && entry.end >= entry.begin, path, ": tensor '",
                printable_name(entry.name), "' lies at bytes ", entry.begin, " to ", entry.end,
                "; expected it to begin at ", at);
    at = entry.end;
  }
  RT_CHECK_AS(FormatError, at == data_bytes, path, ": the header describes ", at, " bytes of tensors, the file holds ",
              data_bytes);
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& path) {
  RT_CHECK_AS(FormatError, text.starts_with('{'), path, ": the header does not start with {; not a safetensors file");
  HeaderReader reader(path);
  read_json(text, reader);
  SafetensorsHeader out = reader.take();
  check_layout(path, out.tensors, data_bytes);
  return out;
}

}  // namespace ringtape
