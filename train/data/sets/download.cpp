#include "train/data/sets/download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "train/io/hash.h"
#include "train/io/look.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMnist = "https://ossci-datasets.s3.amazonaws.com/mnist/";
// The authors' own repository: their other address has no https.
constexpr const char* kFashion =
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/"
    "fashion/";
constexpr const char* kCifar = "https://www.cs.toronto.edu/~kriz/";

// clang-format off
const PublishedFile kFiles[] = {
    {"mnist", kMnist, "train-images-idx3-ubyte.gz", 9'912'422,
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", "mnist",
     "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
    {"mnist", kMnist, "train-labels-idx1-ubyte.gz", 28'881,
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", "mnist",
     "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
    {"mnist", kMnist, "t10k-images-idx3-ubyte.gz", 1'648'877,
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", "mnist",
     "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
    {"mnist", kMnist, "t10k-labels-idx1-ubyte.gz", 4'542,
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", "mnist",
     "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
    {"fashion_mnist", kFashion, "train-images-idx3-ubyte.gz", 26'421'880,
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", "fashion_mnist"},
    {"fashion_mnist", kFashion, "train-labels-idx1-ubyte.gz", 29'515,
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", "fashion_mnist"},
    {"fashion_mnist", kFashion, "t10k-images-idx3-ubyte.gz", 4'422'102,
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", "fashion_mnist"},
    {"fashion_mnist", kFashion, "t10k-labels-idx1-ubyte.gz", 5'148,
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", "fashion_mnist"},
    {"cifar10", kCifar, "cifar-10-binary.tar.gz", 170'052'171,
     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
     "cifar-10-batches-bin", "", true},
    {"cifar100", kCifar, "cifar-100-binary.tar.gz", 168'513'733,
     "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
     "cifar-100-binary", "", true},
};
// clang-format on

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  RT_CHECK_AS(IoError, !error, folder.string(), ": cannot make this folder: ", error.message());
}

// Removes anything at that path that is not a partial download by this user, such as a link to another file; a link is
// not followed.
void clear_part(const PublishedFile& file, const fs::path& part) {
  struct stat found {};
  if (::lstat(part.c_str(), &found) != 0) return;
  if (S_ISREG(found.st_mode) && found.st_nlink == 1 && found.st_uid == ::geteuid() && found.st_size <= file.bytes)
    return;
  std::error_code error;
  fs::remove(part, error);
  RT_CHECK_AS(IoError, !error, part.string(), ": cannot remove: ", error.message());
}

// Runs curl in a shell that limits the file to the published size: --max-filesize relies on the size that the server
// announces.
Finished curl(const PublishedFile& file, const std::string& url, const std::string& part, bool show) {
  constexpr int64_t kBlock = 512;  // bytes per unit of POSIX's ulimit -f
  const std::string limited = concat("ulimit -f ", file.bytes / kBlock + 1, " && exec \"$@\"");
  // clang-format off
  return run_program({"sh", "-c", limited, "sh", "curl", "--fail", "--location", "--proto", "=http,https,file",
                      "--proto-redir", "=http,https", "--max-filesize", std::to_string(file.bytes),
                      "--speed-limit", "1000", "--speed-time", "60", "--retry", "3", "--connect-timeout", "20",
                      "--continue-at", "-", show ? "--progress-bar" : "--silent", "--show-error",
                      "--output", part, "--", url},
                     {.show = show});
  // clang-format on
}

// Afterwards `path` has the published content or does not exist.
void fetch(const PublishedFile& file, const std::string& url, const fs::path& path, bool show) {
  constexpr int kTooLong = 63, kStoppedBySize = 128 + SIGXFSZ;  // exit codes
  const std::string part = path.string() + ".part";
  clear_part(file, part);
  // True before fetching if an earlier call was stopped just before it renamed the file.
  const auto whole = [&] { return is_there(part) && sha256_of(part) == file.sha256; };
  if (!whole()) {
    const Finished done = curl(file, url, part, show);
    const std::string reason = done.error.substr(0, done.error.find('\n'));
    std::error_code ignored;
    const bool longer = done.code == 0 && int64_t(fs::file_size(part, ignored)) > file.bytes;
    if (longer || done.code == kTooLong || done.code == kStoppedBySize) {
      fs::remove(part, ignored);
      detail::fail<FormatError>({url, ": is longer than the ", file.bytes, " published bytes; the file was deleted"});
    }
    RT_CHECK_AS(IoError, done.code == 0, "cannot fetch ", url, " (",
                reason.empty() ? concat("curl: exit status ", done.code) : reason,
                "); download it by hand, put it into ", path.parent_path().string(), " and run this again");
  }
  const std::string sha256 = sha256_of(part);
  if (sha256 != file.sha256) {
    fs::remove(part);
    detail::fail<FormatError>({url, ": expected sha256 ", file.sha256, ", got ", sha256,
                               "; the file is not the published one and was deleted"});
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
  const Finished tar =
      run_program({"tar", "--extract", "--gzip", "--no-same-owner", "--file", archive.string(), "--directory", beside});
  RT_CHECK_AS(IoError, tar.code == 0, archive.string(), ": cannot unpack: ", tar.error.substr(0, tar.error.find('\n')));
  std::error_code error;
  fs::rename(fs::path(beside) / folder.filename(), folder, error);
  RT_CHECK_AS(IoError, !error, folder.string(), ": cannot unpack ", archive.string(), " to it: ", error.message());
}

}  // namespace

std::span<const PublishedFile> published_files() { return kFiles; }

bool is_published(const std::string& set) {
  return std::ranges::any_of(kFiles, [&](const PublishedFile& file) { return set == file.set; });
}

std::string place_of(const PublishedFile& file, const std::string& dir) {
  return (file.archive ? fs::path(dir) / file.name : fs::path(dir) / file.folder / file.name).string();
}

bool download(const PublishedFile& file, const std::string& dir, const std::string& from, bool show_progress) {
  const fs::path path = place_of(file, dir), folder = fs::path(dir) / file.folder;
  if (is_there(file.archive ? folder : path)) return false;
  make_folder(path.parent_path());
  std::string url = from.empty() ? file.url : from;
  if (!url.ends_with('/')) url += '/';
  url += file.name;
  if (!is_there(path)) {
    fetch(file, url, path, show_progress);
  } else if (const std::string sha256 = sha256_of(path); sha256 != file.sha256) {
    detail::fail<FormatError>(
        {path.string(), ": expected sha256 ", file.sha256, ", got ", sha256, "; remove it and run this again"});
  }
  if (file.archive) unpack(path, folder);
  return true;
}

}  // namespace ringtape
