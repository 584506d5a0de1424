#include "train/io/hash.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "core/check.h"

namespace ringtape {

std::string md5_of(const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  RT_CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_md5(), nullptr), "OpenSSL offers no MD5");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  RT_CHECK_AS(IoError, file, path, ": cannot open: ", std::strerror(errno));
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), std::streamsize(block.size())), file.gcount() > 0)
    EVP_DigestUpdate(hash.get(), block.data(), size_t(file.gcount()));
  RT_CHECK_AS(IoError, !file.bad(), path, ": cannot read: ", std::strerror(errno));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(hash.get(), digest, &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i)
    for (int half : {digest[i] >> 4, digest[i] & 15}) out += "0123456789abcdef"[half];
  return out;
}

}  // namespace ringtape
