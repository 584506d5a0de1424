#include <algorithm>
#include <cstdio>

#include "comm/job/rendezvous.h"
#include "comm/process_group.h"
#include "comm/transport/transports.h"

using namespace ringtape;

int main() {
  const auto job = comm::job_from_environment();  // what a launcher says: `ringtape launch`, mpirun, srun, torchrun
  if (!job) return std::puts("start several of it: ringtape launch -n 2 -- PROGRAM"), 2;
  comm::ProcessGroup group(comm::make_transport("auto", job->context()));  // shared memory on one host, else sockets
  const Tensor x = group.allocate({1 << 20}, DType::f32);                  // where the others reach it
  std::ranges::fill(x.span<float>(), float(group.rank() + 1));
  comm::Work work = group.all_reduce(x).start();  // on the group's thread
  work.wait();
  std::printf("rank %d of %d: %g\n", group.rank(), group.size(), x.span<float>()[0]);
}
