#pragma once
#include <string>
#include <string_view>

namespace ringtape::comm {

// Who holds the job's token may talk to its store. Neither side sends it: each proves that it holds it, over both
// sides' nonces, so that no answer can be used again, nor sent back to the one who gave it.
inline constexpr size_t kNonce = 32, kProof = 32;  // bytes
enum class Side : char { client = 'c', store = 's' };

std::string random_bytes(size_t count);
std::string random_token();  // 128 bits in hexadecimal

std::string hmac(std::string_view key, std::string_view text);  // HMAC-SHA256, 32 bytes

// hmac(token, side | the store's nonce | the client's nonce).
std::string prove(std::string_view token, Side side, std::string_view store_nonce, std::string_view client_nonce);
bool same(std::string_view a, std::string_view b);  // in a time that does not depend on the bytes

}  // namespace ringtape::comm
