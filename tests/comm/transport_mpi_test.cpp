// The mpi transport; mpirun starts the ranks.
#include "tests/support/mpi_ranks.h"
#include "tests/support/transport_ranks.h"

namespace ringtape::comm {
namespace {

using namespace test;

// One of the ranks that mpirun starts for the test below.
TEST(TransportMpi, DISABLED_Rank) {
  ringtape::test::as_mpi_rank(Seconds(20), [](const Context& context) {
    const int rank = context.rank, size = context.size;
    {
      const auto t = make_transport("mpi", context);
      pass_around(*t, kSizes, false);
      many_tickets(*t);
      if (rank % 2 == 1) {  // two of the four
        const auto part =
            t->open({rank / 2, size / 2, prefix_store(context.store, "part"), context.failure, context.timeout});
        pass_around(*part, {1, 100000}, false);
      }
    }
    const auto t =
        make_transport("mpi", {rank, size, prefix_store(context.store, "again"), context.failure, context.timeout});
    const std::string text = message_of<CommError>([&] {
      uint8_t out[16] = {}, in[16];
      t->begin(operation(rank == 0 ? 1000 : 2000, 4), Deadline(Seconds(1)));
      t->exchange({send_to((rank + 1) % size, out, 16), recv_from((rank + size - 1) % size, in, 16)});
      t->exchange({recv_from((rank + 1) % size, in, 16)});
    });
    if (rank < 2) {
      EXPECT_MENTIONS(text, "(sum, u8, 1,000 elements)");
      EXPECT_MENTIONS(text, "(sum, u8, 2,000 elements)");
    } else {
      EXPECT_MENTIONS(text, "s for rank");
    }
  });
}

TEST(TransportMpi, WorksUnderMpirun) {
  if (!ringtape::test::has_mpirun()) GTEST_SKIP() << "there is no mpirun (apt-get install openmpi-bin)";
  ringtape::test::run_under_mpirun(4, "TransportMpi");
}

TEST(TransportMpi, SaysHowManyRanksMpiKnows) {
  on_processes(1, [](const Context& context) {
    Context two = context;
    two.size = 2;
    const std::string text = message_of<CommError>([&] { make_transport("mpi", two); });
    EXPECT_MENTIONS(text,
                    text.find("libmpi.so.40") == std::string::npos ? "start them with mpirun -n 2" : "./setup.sh test");
  });
}

}  // namespace
}  // namespace ringtape::comm
