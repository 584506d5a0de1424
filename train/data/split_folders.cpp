#include "train/data/split_folders.h"

#include <filesystem>
#include <map>
#include <utility>

#include "core/check.h"
#include "train/data/dataset.h"
#include "train/io/look.h"

namespace ringtape {

void visit(Fields& f, SplitFolderOptions& o) {
  const auto folder = [&](const char* name, std::string& value, const char* help, const char* automatic) {
    f(name, value,
      {.help = help, .unit = "DIR", .automatic = automatic, .scope = Scope::rank, .may_change = true,
       .evaluates = true});
  };
  folder("train-dir", o.train, "folder of the training images, within --data-dir or elsewhere",
         "train if it is there, else --data-dir itself");
  folder("val-dir", o.val, "folder of the validation images",
         "val if there is also test, else --val-size of the training images");
  folder("test-dir", o.test, "folder of the test images", "test, else val, else every tenth training image");
}

SplitFolders split_folders(const SplitFolderOptions& o, const std::string& dir, const std::string& set) {
  const std::filesystem::path root = dir;
  RT_CHECK_AS(MissingData, is_folder_at(dir), set, ": no folder ", dir, "; --data-dir names it");
  const auto named = [&](const char* flag, const std::string& name, const char* usual) -> std::string {
    const std::string path = (root / (name.empty() ? usual : name)).string();
    const bool there = is_folder_at(path);
    RT_CHECK_AS(UsageError, there || name.empty(), "--", flag, " ", name, ": no folder ", path);
    return there ? path : "";
  };
  SplitFolders out{dir, named("train-dir", o.train, "train"), named("val-dir", o.val, "val"),
                   named("test-dir", o.test, "test")};
  if (out.test.empty() && o.val.empty()) out.test = std::exchange(out.val, "");
  if (!out.train.empty()) return out;
  RT_CHECK_AS(UsageError, o.val.empty() && o.test.empty(), "--val-dir and --test-dir: need --train-dir, or ",
              (root / "train").string());
  return {dir, dir, "", ""};
}

void check_test_folder(const SplitFolders& at, bool labels) {
  RT_CHECK_AS(IoError, !at.divided() || !at.test.empty() || !labels, at.root,
              at.val.empty() ? ": has train/ but neither test/ nor val/ next to it"
                             : ": no test images; --test-dir names their folder");
}

void hold_out_test_images(LabelledImages& train, LabelledImages& test) {
  std::vector<int64_t> kept, held;
  std::map<int64_t, int64_t> number;  // of the images of each class so far
  for (int64_t i = 0; i < train.size(); ++i)
    (++number[train.labels[size_t(i)]] % kEachTest == 0 ? held : kept).push_back(i);
  test = chosen(train, held), train = chosen(train, kept);
}

}  // namespace ringtape
