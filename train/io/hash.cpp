#include "train/io/hash.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "core/check.h"

namespace ringtape {

namespace {

// The hash of the blocks that read(block) fills; it returns their sizes, 0 at the end.
template <class Read> std::string sha256_of_blocks(Read&& read) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  RT_CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr), "OpenSSL offers no SHA-256");
  std::vector<char> block(1 << 20);
  while (const size_t bytes = read(block)) EVP_DigestUpdate(hash.get(), block.data(), bytes);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(hash.get(), digest, &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i)
    for (int half : {digest[i] >> 4, digest[i] & 15}) out += "0123456789abcdef"[half];
  return out;
}

}  // namespace

Crc32& Crc32::add(const void* data, size_t bytes) {
  value_ = uint32_t(crc32_z(value_, static_cast<const Bytef*>(data), bytes));
  return *this;
}

std::string Crc32::str() const { return fmt::format("{:08x}", value_); }

std::string sha256_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", std::strerror(errno));
  return sha256_of_blocks([&](std::vector<char>& block) {
    file.read(block.data(), std::streamsize(block.size()));
    RT_CHECK_AS(IoError, !file.bad(), path, ": cannot read: ", std::strerror(errno));
    return size_t(file.gcount());
  });
}

std::string sha256_of_unpacked(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", std::strerror(errno));
  return sha256_of_blocks([&](std::vector<char>& block) {
    const int bytes = gzread(file.get(), block.data(), unsigned(block.size()));
    RT_CHECK_AS(FormatError, bytes >= 0, path, ": damaged gzip data");
    return size_t(bytes);
  });
}

}  // namespace ringtape
