#include "comm/store/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "core/check.h"

namespace ringtape::comm {

std::string random_bytes(size_t count) {
  std::string out(count, '\0');
  RT_CHECK_AS(CommError, RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), int(count)) == 1,
              "OpenSSL provides no random numbers");
  return out;
}

std::string random_token() {
  std::string out;
  for (const char c : random_bytes(16)) {
    out += "0123456789abcdef"[uint8_t(c) >> 4];
    out += "0123456789abcdef"[uint8_t(c) & 15];
  }
  return out;
}

std::string hmac(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  RT_CHECK_AS(CommError, HMAC(EVP_sha256(), key.data(), int(key.size()), bytes, text.size(), digest, &size),
              "OpenSSL has no HMAC-SHA256");
  return {reinterpret_cast<const char*>(digest), size};
}

std::string prove(std::string_view token, Side side, std::string_view store_nonce, std::string_view client_nonce) {
  RT_CHECK(store_nonce.size() == kNonce && client_nonce.size() == kNonce);
  return hmac(token, concat(char(side), store_nonce, client_nonce));
}

bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace ringtape::comm
