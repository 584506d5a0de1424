// What the system grants a process: control groups of both versions, descriptors, threads.
#include "core/limits.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "core/cgroup.h"
#include "core/check.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::Child;
using test::message_of;
using test::TemporaryFolder;

// A tree of control groups as the kernel shows it.
class CgroupsTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_.path() + path).parent_path());
    std::ofstream(folder_.path() + path) << text;
  }
  Cgroups groups(const std::string& membership) const {
    write("/self", membership);
    return {folder_.path() + "/fs", folder_.path() + "/self"};
  }
  const TemporaryFolder folder_;
};

TEST_F(CgroupsTest, TheLeastOfAllGroupsAboveCounts) {
  write("/fs/cgroup.procs", "");  // the root has no limits
  write("/fs/kube/cpu.max", "150000 100000\n");
  write("/fs/kube/pod/cpu.max", "250000 100000\n");
  write("/fs/kube/pod/box/cpu.max", "max 100000\n");
  write("/fs/other/cpu.max", "1000 100000\n");
  write("/fs/kube/pod/pids.max", "64\n");
  write("/fs/kube/pids.max", "max\n");
  EXPECT_EQ(groups("0::/kube/pod/box\n").cpus(), 1.5);
  EXPECT_EQ(groups("0::/kube/pod/box\n").processes(), 64);
  EXPECT_EQ(groups("0::/\n").cpus(), std::nullopt);
  EXPECT_EQ(groups("0::/nowhere\n").cpus(), std::nullopt);
  EXPECT_EQ(groups("").cpus(), std::nullopt);
  EXPECT_EQ(groups("0:\n").processes(), std::nullopt);
}

TEST_F(CgroupsTest, MemoryAndWhatTheKernelKilledForIt) {
  write("/fs/kube/memory.max", "419430400\n");
  write("/fs/kube/memory.events", "low 0\nhigh 0\nmax 90\noom 9\noom_kill 7\noom_group_kill 0\n");
  write("/fs/kube/pod/memory.max", "max\n");
  const Cgroups second = groups("0::/kube/pod\n");
  EXPECT_EQ(second.memory(), 400 << 20);
  EXPECT_EQ(second.oom_kills(), 7);  // the nearest group that counts
  write("/fs/kube/pod/memory.events", "oom 1\noom_kill 1\n");
  EXPECT_EQ(second.oom_kills(), 1);
  EXPECT_EQ(groups("0::/\n").memory(), std::nullopt);
  EXPECT_EQ(groups("0::/\n").oom_kills(), std::nullopt);

  write("/fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/fs/memory/docker/memory.limit_in_bytes", "1048576\n");
  write("/fs/memory/docker/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(groups("9:memory:/docker\n").memory(), 1 << 20);
  EXPECT_EQ(groups("9:memory:/docker\n").oom_kills(), 3);
  EXPECT_EQ(groups("9:memory:/\n").memory(), std::nullopt);
}

TEST_F(CgroupsTest, InAContainerTheRootIsItsOwn) {
  write("/fs/cpu.max", "50000 100000\n");
  EXPECT_EQ(groups("0::/\n").cpus(), 0.5);
  EXPECT_EQ(groups("0::/docker/0123456789\n").cpus(), 0.5);  // the host's path
}

TEST_F(CgroupsTest, TheFirstVersion) {
  write("/fs/cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n");
  write("/fs/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  const std::string self = "12:pids:/slurm/job\n4:cpu,cpuacct:/slurm/job\n3:cpuset:/\n1:name=systemd:/\n";
  EXPECT_EQ(groups(self).cpus(), std::nullopt);
  write("/fs/cpu,cpuacct/slurm/job/cpu.cfs_quota_us", "325000\n");
  write("/fs/cpu,cpuacct/slurm/job/cpu.cfs_period_us", "100000\n");
  write("/fs/pids/slurm/job/pids.max", "16\n");
  EXPECT_EQ(groups(self).cpus(), 3.25);
  EXPECT_EQ(groups(self).processes(), 16);
}

TEST(Limits, DescriptorsAreCountedAndNamed) {
  EXPECT_EQ(lack_of_descriptors(4), "");
  Child child([] {
    const rlimit few{40, 50};
    RT_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const std::string lack = lack_of_descriptors(100);
    for (const char* part : {"100 more file descriptors are needed", "the limit is 40 (hard limit 50)", "ulimit -n"})
      RT_CHECK(lack.find(part) != std::string::npos, lack);
    RT_CHECK(reason(EMFILE).find("the limit of this process is 40") != std::string::npos, reason(EMFILE));
    const auto soft = [] {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      return int(limit.rlim_cur);
    };
    raise_descriptor_limit();
    RT_CHECK_EQ(soft(), 50);
    restore_descriptor_limit();
    RT_CHECK_EQ(soft(), 40);
  });
  EXPECT_EQ(child.wait(), 0);
}

// As another user than root, whom the limit does not hold.
TEST(Limits, AThreadThatCannotBeStartedNamesTheLimit) {
  Child child([] {
    const rlimit none{0, 0};
    RT_CHECK(::setrlimit(RLIMIT_NPROC, &none) == 0);
    if (::geteuid() == 0) RT_CHECK(::setresuid(65534, 65534, 65534) == 0);
    const std::string why = message_of<Error>([] { start_thread("a test", [] {}).join(); });
    for (const char* part : {"cannot start a thread (a test): pthread_create: Resource temporarily unavailable",
                             "the limit of processes and threads is 0 for this user (ulimit -u)"})
      RT_CHECK(why.find(part) != std::string::npos, why);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Limits, AThreadWithoutAddressSpaceNamesItsLimit) {
  Child child([] {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit stack{};
    RT_CHECK(::getrlimit(RLIMIT_STACK, &stack) == 0);
    stack.rlim_cur = 64 << 20;
    RT_CHECK(::setrlimit(RLIMIT_STACK, &stack) == 0);
    pthread_attr_t threads;
    RT_CHECK(::pthread_attr_init(&threads) == 0 && ::pthread_attr_setstacksize(&threads, stack.rlim_cur) == 0 &&
             ::pthread_setattr_default_np(&threads) == 0);
    const rlim_t most = pages * rlim_t(::sysconf(_SC_PAGESIZE)) + (32 << 20);
    const rlimit space{most, most};
    RT_CHECK(::setrlimit(RLIMIT_AS, &space) == 0);
    const std::string why = message_of<OutOfMemory>([] { start_thread("a test", [] {}).join(); });
    for (const char* part : {"cannot start a thread (a test): its stack needs 64 MiB of address space", "(ulimit -v)"})
      RT_CHECK(why.find(part) != std::string::npos, why);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Limits, UsableCpusAreSomeOfTheAllowed) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), allowed_cpus());
}

}  // namespace
}  // namespace ringtape
