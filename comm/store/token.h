#pragma once
#include <string>
#include <string_view>

namespace ringtape::comm {

// Only processes that know the job's token may use its store. Neither side sends the token: each side proves that it
// knows it, using the nonces of both sides, so that a proof can be neither replayed nor reflected.
inline constexpr size_t kNonce = 32, kProof = 32;  // bytes
enum class Side : char { client = 'c', store = 's' };

std::string random_bytes(size_t count);
std::string random_token();  // 128 bits in hexadecimal

std::string hmac(std::string_view key, std::string_view text);  // HMAC-SHA256, 32 bytes

// hmac(token, side | the store's nonce | the client's nonce).
std::string prove(std::string_view token, Side side, std::string_view store_nonce, std::string_view client_nonce);
bool same(std::string_view a, std::string_view b);  // in constant time

}  // namespace ringtape::comm
