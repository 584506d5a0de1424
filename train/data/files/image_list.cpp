#include "train/data/files/image_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

// The extension with its dot, in lower case.
std::string ending(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return end;
}

// The entries of a folder that are not hidden, in the byte order of their names. Throws IoError.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> out;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (!entry.path().filename().native().starts_with('.')) out.push_back(entry);
  } catch (const fs::filesystem_error& e) {
    detail::fail<IoError>({folder.string(), ": cannot read: ", e.code().message()});
  }
  std::sort(out.begin(), out.end(), [](const fs::directory_entry& a, const fs::directory_entry& b) {
    return a.path().native() < b.path().native();
  });
  return out;
}

// What an entry is or, for a link, leads to. Throws IoError if that cannot be found out.
fs::file_type entry_type(const fs::directory_entry& entry) {
  std::error_code error;
  const fs::file_type kind = entry.status(error).type();
  if (error == std::errc::too_many_symbolic_link_levels) return fs::file_type::not_found;  // a link to itself
  RT_CHECK_AS(IoError, kind != fs::file_type::none, entry.path().string(), ": cannot read: ", error.message());
  return kind;
}

struct stat status_of(const fs::path& path) {
  struct stat out {};
  RT_CHECK_AS(IoError, ::stat(path.c_str(), &out) == 0, path.string(),
              ": cannot read: ", std::generic_category().message(errno));
  return out;
}

using FolderId = std::pair<dev_t, ino_t>;
FolderId id_of(const fs::path& folder) {
  const struct stat now = status_of(folder);
  return {now.st_dev, now.st_ino};
}

// A folder and all folders that it lies in.
std::vector<FolderId> with_parents(const fs::path& folder) {
  std::vector<FolderId> out;
  fs::path path = fs::canonical(folder);
  for (; path.has_relative_path(); path = path.parent_path()) out.push_back(id_of(path));
  out.push_back(id_of(path));
  return out;
}

// A walk through folders and all below them.
class Walk {
 public:
  Walk(const fs::path& root, std::vector<FolderId> above, std::atomic<int64_t>& all, const Found& found)
      : root_(root), all_(all), found_(found), above_(std::move(above)) {}

  void folder(const fs::path& path) {
    const FolderId id = id_of(path);
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) {
      ++left_out.unreachable;
      return;
    }
    above_.push_back(id);
    for (const fs::directory_entry& entry : entries_of(path)) add(entry);
    above_.pop_back();
  }

  struct File {
    std::string name;
    int64_t bytes, changed;
  };
  std::vector<File> files;
  LeftOut left_out;

 private:
  void add(const fs::directory_entry& entry) {
    const fs::file_type kind = entry_type(entry);
    if (kind == fs::file_type::directory) return folder(entry.path());
    if (kind == fs::file_type::not_found) {
      ++left_out.unreachable;
      return;
    }
    if (kind != fs::file_type::regular || !is_image_path(entry.path())) {
      ++left_out.files[ending(entry.path())];
      return;
    }
    const struct stat is = status_of(entry.path());
    const int64_t changed = int64_t{is.st_ctim.tv_sec} * 1'000'000'000 + is.st_ctim.tv_nsec;  // also if it was replaced
    files.push_back({entry.path().lexically_relative(root_).string(), int64_t{is.st_size}, changed});
    const int64_t n = ++all_;
    if (found_ && n % 1000 == 0) found_(n);
  }

  const fs::path root_;
  std::atomic<int64_t>& all_;
  const Found& found_;
  std::vector<FolderId> above_;  // the folders that this one lies in
};

// Adds one class.
void add_files(ImageFiles& images, FolderListing& out, const Walk& walk, int64_t label) {
  for (const auto& [name, bytes, changed] : walk.files) images.add(name, bytes, changed);
  out.images.labels.insert(out.images.labels.end(), walk.files.size(), label);
  out.left_out.add(walk.left_out);
}

}  // namespace

void LeftOut::add(const LeftOut& other) {
  for (const auto& [end, count] : other.files) files[end] += count;
  loose += other.loose, unreachable += other.unreachable;
}

std::string LeftOut::str() const {
  constexpr size_t kShown = 6;
  std::vector<std::pair<int64_t, std::string>> kinds;
  int64_t all = 0, others = 0;
  for (const auto& [end, count] : files)
    all += count, kinds.emplace_back(-count, end.empty() ? "without an extension" : end);
  std::sort(kinds.begin(), kinds.end());
  std::string list, out;
  for (size_t i = 0; i < kinds.size(); ++i)
    if (i < kShown) list += concat(i > 0 ? ", " : "", with_commas(-kinds[i].first), " ", kinds[i].second);
    else others -= kinds[i].first;
  if (others > 0) list += concat(", ", with_commas(others), " others");
  const auto say = [&](int64_t count, const char* one, const char* many, const std::string& more) {
    if (count > 0) out += concat(out.empty() ? "" : "; ", with_commas(count), " ", count == 1 ? one : many, more);
  };
  say(all, "file that is no image", "files that are no images", concat(" by name (", list, ")"));
  say(loose, "image", "images", " outside the folders of the classes");
  say(unreachable, "link", "links", " to nothing or back to a folder above");
  return out;
}

LabelledImages chosen(const LabelledImages& from, const std::vector<int64_t>& images) {
  LabelledImages out{std::make_shared<ChosenImages>(from.images, images, from.images->reading()), {}};
  for (const int64_t i : images) out.labels.push_back(from.labels[size_t(i)]);
  return out;
}

LabelledImages read_as(const LabelledImages& from, const ImageReading& reading) {
  std::vector<int64_t> all(size_t(from.size()));
  std::iota(all.begin(), all.end(), 0);
  return {std::make_shared<ChosenImages>(from.images, std::move(all), reading), from.labels};
}

FolderListing list_classes(const std::string& root, const Found& found) {
  FolderListing out;
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : entries_of(root)) {
    const fs::file_type kind = entry_type(entry);
    if (kind == fs::file_type::directory) folders.push_back(entry.path());
    else if (kind == fs::file_type::not_found) ++out.left_out.unreachable;
    else if (is_image_path(entry.path())) ++out.left_out.loose;
    else ++out.left_out.files[ending(entry.path())];
  }
  std::atomic<int64_t> all = 0;
  std::vector<Walk> walks(folders.size(), Walk(root, with_parents(root), all, found));
  parallel_for(int64_t(folders.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) walks[size_t(i)].folder(folders[size_t(i)]);
  });
  auto images = std::make_shared<ImageFiles>(root);
  for (size_t i = 0; i < folders.size(); ++i) {
    RT_CHECK_AS(FormatError, all == 0 || !walks[i].files.empty(), folders[i].string(), ": no images (", kImageEndings,
                ") in this class; remove the folder or fill it");
    add_files(*images, out, walks[i], int64_t(i));
    out.classes.push_back(folders[i].filename().string());
  }
  out.images.images = std::move(images);
  return out;
}

FolderListing list_flat(const std::string& root, const Found& found) {
  FolderListing out;
  std::atomic<int64_t> all = 0;
  std::vector<FolderId> above = with_parents(root);
  above.erase(above.begin());  // the walk adds it
  Walk walk(root, std::move(above), all, found);
  walk.folder(root);
  auto images = std::make_shared<ImageFiles>(root);
  add_files(*images, out, walk, 0);
  out.images.images = std::move(images);
  return out;
}

bool has_more_images_than_folders(const std::string& root) {
  int64_t more = 0;
  for (const fs::directory_entry& e : entries_of(root)) {
    const fs::file_type kind = entry_type(e);
    more += kind == fs::file_type::regular && is_image_path(e.path());
    more -= kind == fs::file_type::directory;
  }
  return more > 0;
}

}  // namespace ringtape
