#include <cstring>
#include <deque>
#include <mutex>

#include "comm/transport/header.h"
#include "comm/transport/mpi_library.h"
#include "comm/transport/transports.h"

namespace ringtape::comm {

namespace {

// Bytes that are sent together with the header: below Open MPI's eager limits.
constexpr size_t kTogether = 4096 - sizeof(MessageHeader);
constexpr size_t kMaxMessageBytes = size_t(1) << 30;  // MPI counts in int
constexpr int kTag = 7;

// MPI_THREAD_SERIALIZED: only one thread of the process may call MPI at a time.
std::mutex& calls() {
  static std::mutex mutex;
  return mutex;
}

// The first message of each transfer has the header and the first bytes. The others are sent and received directly in
// the buffer.
struct MpiPacket {
  MessageHeader header;
  char data[kTogether];
};

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(Context context) : Transport(std::move(context)), mpi_(mpi()) { join(); }

  ~MpiTransport() override {
    // MPI_Comm_free is a collective. It is not called after a failure, because other ranks may be gone, and not with
    // open messages, to which MPI still writes.
    if (context_.failure->raised() || !open_.empty()) {
      abandon_mpi();
      static std::deque<std::deque<Open>> kept;
      const std::lock_guard lock(calls());
      kept.push_back(std::move(open_));
      return;
    }
    const std::lock_guard lock(calls());
    if (comm_) mpi_.Comm_free(&comm_);
  }

  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Transport> open(Context context) const override { return mpi_transport(std::move(context)); }

  Ticket start(std::span<const Transfer> transfers) override {
    const std::lock_guard lock(calls());
    for (const Transfer& t : transfers) {
      Open& o = open_.emplace_back(Open{t, ticket_, take_packet(), {}});
      const size_t first = std::min(t.bytes, kTogether);
      if (t.way == Transfer::Way::send) {
        o.packet->header = {operation_, t.bytes, -1};
        if (first > 0) std::memcpy(o.packet->data, t.data, first);
        post(o, o.packet.get(), sizeof(MessageHeader) + first);
      } else {
        post(o, o.packet.get(), sizeof(MpiPacket));
      }
      for (size_t at = first; at < t.bytes; at += kMaxMessageBytes)
        post(o, static_cast<char*>(t.data) + at, std::min(kMaxMessageBytes, t.bytes - at));
    }
    return ticket_++;
  }

  void finish(Ticket ticket) override {
    while (!open_.empty() && open_.front().ticket <= ticket) {
      Open& o = open_.front();
      if (!done(o))
        for (Wait wait(*this, o.transfer.peer); !done(o);) wait.pause();
      free_.push_back(std::move(o.packet));
      open_.pop_front();
    }
  }

 private:
  struct Open {
    Transfer transfer;
    Ticket ticket;
    std::unique_ptr<MpiPacket> packet;
    std::vector<Mpi::Handle> requests;
    size_t completed = 0;
  };

  // The group may have any of the world's ranks; its own communicator separates its messages from others.
  void join() {
    begin({}, Deadline(context_.timeout));
    Store& store = *context_.store;
    int own = 0, world = 0;
    mpi_.check(mpi_.Comm_rank(mpi_.world, &own), "MPI_Comm_rank");
    mpi_.check(mpi_.Comm_size(mpi_.world, &world), "MPI_Comm_size");
    RT_CHECK_AS(CommError, world >= size(), "mpi: this group has ", size(), " ranks, but MPI has only ", world,
                world == 1 ? " process" : " processes", "; start them with mpirun -n ", size());
    store.set(concat("mpi/", rank()), std::to_string(own));
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) ranks.push_back(std::stoi(store.wait(concat("mpi/", r), deadline_)));
    const std::lock_guard lock(calls());
    Mpi::Handle all = nullptr, some = nullptr;
    mpi_.check(mpi_.Comm_group(mpi_.world, &all), "MPI_Comm_group");
    mpi_.check(mpi_.Group_incl(all, size(), ranks.data(), &some), "MPI_Group_incl");
    mpi_.check(mpi_.Comm_create_group(mpi_.world, some, kTag, &comm_), "MPI_Comm_create_group");
    mpi_.check(mpi_.Comm_set_errhandler(comm_, mpi_.errors_return), "MPI_Comm_set_errhandler");
    mpi_.Group_free(&some);
    mpi_.Group_free(&all);
  }

  std::unique_ptr<MpiPacket> take_packet() {
    if (free_.empty()) return std::make_unique<MpiPacket>();
    std::unique_ptr<MpiPacket> packet = std::move(free_.back());
    free_.pop_back();
    return packet;
  }

  void post(Open& o, void* data, size_t bytes) {
    Mpi::Handle& request = o.requests.emplace_back();
    if (o.transfer.way == Transfer::Way::send)
      mpi_.check(mpi_.Isend(data, int(bytes), mpi_.byte, o.transfer.peer, kTag, comm_, &request), "MPI_Isend");
    else mpi_.check(mpi_.Irecv(data, int(bytes), mpi_.byte, o.transfer.peer, kTag, comm_, &request), "MPI_Irecv");
  }

  bool done(Open& o) {
    const std::lock_guard lock(calls());
    for (; o.completed < o.requests.size(); ++o.completed) {
      int flag = 0;
      Mpi::Status status{};
      mpi_.check(mpi_.Test(&o.requests[o.completed], &flag, &status), "MPI_Test");
      if (!flag) return false;
      if (o.completed == 0 && o.transfer.way == Transfer::Way::recv) {
        check_header(*this, o.transfer.peer, o.packet->header, o.transfer.bytes);
        if (o.transfer.bytes > 0) std::memcpy(o.transfer.data, o.packet->data, std::min(o.transfer.bytes, kTogether));
      }
    }
    return true;
  }

  const Mpi& mpi_;
  Mpi::Handle comm_ = nullptr;
  std::deque<Open> open_;
  std::vector<std::unique_ptr<MpiPacket>> free_;
  Ticket ticket_ = 0;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(Context context) { return std::make_unique<MpiTransport>(std::move(context)); }

}  // namespace ringtape::comm
