#pragma once
#include <memory>
#include <string>

namespace ringtape::comm {

// Where the ranks of a job meet, as long as it lives.
class RendezvousServer {
 public:
  virtual ~RendezvousServer() = default;
  virtual int port() const = 0;
};

// On loopback alone, or on every interface for a job of several machines. Port 0 is any free one. Throws CommError.
std::unique_ptr<RendezvousServer> host_rendezvous(bool loopback, int port, const std::string& token);

}  // namespace ringtape::comm
