// The store in a folder: what it leaves behind, who has access, wills of processes that die.
#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "comm/store/store.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::Child;
using test::message_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

Deadline soon(double seconds = 20) { return Deadline(Seconds(seconds)); }

TEST(FileStore, CleansUpAfterItself) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() + "/a/job";
  auto a = file_store(folder), b = file_store(folder);
  a->set("x", "1");
  a.reset();
  EXPECT_EQ(b->get("x"), "1");
  b.reset();
  EXPECT_FALSE(fs::exists(folder));
}

mode_t mode_of(const fs::path& path) {
  struct stat s {};
  EXPECT_EQ(::lstat(path.c_str(), &s), 0) << path;
  return s.st_mode & 07777;
}

// A user who can read the keys could take the place of a rank.
TEST(FileStore, ItsKeysAreThisUsersAlone) {
  const TemporaryFolder temporary;
  ::chmod(temporary.path().c_str(), 0755);  // the folder above may be open
  const fs::path folder = temporary.path() + "/a/job/";
  const mode_t before = ::umask(0);
  const auto store = file_store(folder);
  store->set("secret", "875258e6");
  store->set_once("once", "1");
  store->add("count", 1);
  store->will("end", "rank 0");
  ::umask(before);
  EXPECT_EQ(mode_of(folder.parent_path()), 0700u);
  int files = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    EXPECT_EQ(mode_of(file), 0600u) << file;
    ++files;
  }
  EXPECT_EQ(files, 5);  // three keys, the user, the lock
  EXPECT_EQ(file_store(folder)->get("secret"), "875258e6");
  if (::geteuid() != 0) return;
  Child other([&] {
    RT_CHECK(::setresuid(65534, 65534, 65534) == 0);
    RT_CHECK(::open((folder / "key.secret").c_str(), O_RDONLY) < 0 && errno == EACCES);
    RT_CHECK(message_of<CommError>([&] { file_store(folder); }).find("another user's") != std::string::npos);
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST(FileStore, RefusesAFolderThatOthersMayEnter) {
  const TemporaryFolder temporary;
  const std::string open = temporary.path() + "/open", file = temporary.path() + "/file";
  for (const mode_t mode : {0755, 0710, 0720, 0777}) {
    ::mkdir(open.c_str(), 0700);
    ::chmod(open.c_str(), mode);
    const std::string message = message_of<CommError>([&] { file_store(open); });
    EXPECT_MENTIONS(message, concat("store: ", open, " has mode 0", mode >> 6 & 7, mode >> 3 & 7, mode & 7,
                                    ", so that other users could"));
    EXPECT_MENTIONS(message, "chmod 700");
    EXPECT_TRUE(fs::is_empty(open));
  }
  std::ofstream(file) << "mine";
  EXPECT_MENTIONS(message_of<CommError>([&] { file_store(file); }), "cannot be made a folder");
  ::chmod(open.c_str(), 0700);
  fs::create_directory_symlink(open, temporary.path() + "/link");
  file_store(temporary.path() + "/link")->set("x", "1");
  if (::geteuid() != 0) return;
  ::lchown((temporary.path() + "/link").c_str(), 65534, 65534);  // the link belongs to another user
  fs::create_directory(open);
  EXPECT_MENTIONS(message_of<CommError>([&] { file_store(temporary.path() + "/link"); }), "is another user's (65534");
}

TEST(FileStore, ForgetsWhatAKilledJobLeft) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() + "/job";
  Child child([&] {
    const auto store = file_store(folder);
    store->set("x", "old");
    ::raise(SIGKILL);
  });
  EXPECT_EQ(child.wait(), SIGKILL);
  EXPECT_TRUE(fs::exists(folder / "key.x"));
  EXPECT_EQ(file_store(folder)->get("x"), std::nullopt);
  EXPECT_FALSE(fs::exists(folder));
}

TEST(FileStore, ExecutesTheWillOfAKilledProcess) {
  const TemporaryFolder temporary;
  const std::string folder = temporary.path() + "/job";
  const auto store = file_store(folder);
  Child leaves([&] { file_store(folder)->will("end", "who left"); });
  EXPECT_EQ(leaves.wait(), 0);
  Child dies([&] {
    const auto own = file_store(folder);
    own->will("end", "rank 2");
    own->set("ready", "1");
    ::pause();
  });
  store->wait("ready", soon());
  dies.kill(SIGKILL);
  EXPECT_EQ(store->wait("end", soon()), "rank 2 died");
}

}  // namespace
}  // namespace ringtape::comm
