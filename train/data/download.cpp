#include "train/data/download.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "train/io/hash.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMnist = "https://ossci-datasets.s3.amazonaws.com/mnist/";
constexpr const char* kFashion = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/";
constexpr const char* kCifar = "https://www.cs.toronto.edu/~kriz/";

const PublishedFile kFiles[] = {
    {"mnist", kMnist, "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "mnist", "6bbc9ace898e44ae57da46a324031adb"},
    {"mnist", kMnist, "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "mnist", "a25bea736e30d166cdddb491f175f624"},
    {"mnist", kMnist, "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "mnist", "2646ac647ad5339dbf082846283269ea"},
    {"mnist", kMnist, "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "mnist", "27ae3e4e09519cfbb04c329615203637"},
    {"fashion_mnist", kFashion, "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "fashion_mnist"},
    {"fashion_mnist", kFashion, "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", "fashion_mnist"},
    {"fashion_mnist", kFashion, "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", "fashion_mnist"},
    {"fashion_mnist", kFashion, "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", "fashion_mnist"},
    {"cifar10", kCifar, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin", "", true},
    {"cifar100", kCifar, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary", "", true},
};

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  RT_CHECK_AS(IoError, !error, folder.string(), ": cannot make this folder: ", error.message());
}

// Afterwards `path` holds what is published, or is not there.
void fetch(const PublishedFile& file, const std::string& url, const fs::path& path, bool show) {
  const std::string part = path.string() + ".part";
  const auto whole = [&] { return fs::exists(part) && md5_of(part) == file.md5; };  // before: an earlier call was stopped in time to rename
  if (!whole()) {
    const Finished curl = run_program({"curl", "--fail", "--location", "--retry", "3", "--connect-timeout", "20", "--continue-at", "-",
                                       show ? "--progress-bar" : "--silent", "--show-error", "--output", part, "--", url}, show);
    const std::string reason = curl.error.substr(0, curl.error.find('\n'));
    RT_CHECK_AS(IoError, curl.code == 0, "cannot fetch ", url, " (", reason.empty() ? concat("curl: exit status ", curl.code) : reason,
                "); fetch it by hand, put it into ", path.parent_path().string(), " and run this again");
  }
  const std::string md5 = md5_of(part);
  if (md5 != file.md5) {
    fs::remove(part);
    detail::fail<FormatError>(url, ": expected md5 ", file.md5, ", got ", md5, "; it is not what was published, and was deleted");
  }
  std::error_code error;
  fs::rename(part, path, error);
  RT_CHECK_AS(IoError, !error, path.string(), ": cannot write: ", error.message());
}

void unpack(const fs::path& archive, const fs::path& folder) {
  std::string beside = (folder.parent_path() / ".unpacking-XXXXXX").string();
  RT_CHECK_AS(IoError, ::mkdtemp(beside.data()), beside, ": cannot make this folder: ", std::strerror(errno));
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } const removed{beside};
  const Finished tar = run_program({"tar", "--extract", "--gzip", "--no-same-owner", "--file", archive.string(), "--directory", beside});
  RT_CHECK_AS(IoError, tar.code == 0, archive.string(), ": cannot unpack: ", tar.error.substr(0, tar.error.find('\n')));
  std::error_code error;
  fs::rename(fs::path(beside) / folder.filename(), folder, error);
  RT_CHECK_AS(IoError, !error, folder.string(), ": cannot unpack ", archive.string(), " to it: ", error.message());
}

}  // namespace

std::span<const PublishedFile> published_files() { return kFiles; }

bool is_published(const std::string& set) {
  for (const PublishedFile& file : kFiles)
    if (set == file.set) return true;
  return false;
}

std::string place_of(const PublishedFile& file, const std::string& dir) {
  return (file.archive ? fs::path(dir) / file.name : fs::path(dir) / file.folder / file.name).string();
}

bool download(const PublishedFile& file, const std::string& dir, const std::string& from, bool show_progress) {
  const fs::path path = place_of(file, dir), folder = fs::path(dir) / file.folder;
  std::error_code ignored;
  if (fs::exists(file.archive ? folder : path, ignored)) return false;
  make_folder(path.parent_path());
  std::string url = from.empty() ? file.url : from;
  if (!url.ends_with('/')) url += '/';
  url += file.name;
  if (!fs::exists(path, ignored)) {
    fetch(file, url, path, show_progress);
  } else if (const std::string md5 = md5_of(path); md5 != file.md5) {
    detail::fail<FormatError>(path.string(), ": expected md5 ", file.md5, ", got ", md5, "; remove it and run this again");
  }
  if (file.archive) unpack(path, folder);
  return true;
}

}  // namespace ringtape
