// SPDX-License-Identifier: GPL-3.0-or-later
#include "ecfs/error.hpp"

namespace ecfs {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "ecfs"; }
  std::string message(int value) const override {
    switch (static_cast<Errc>(value)) {
      case Errc::wrong_passphrase: return "wrong passphrase";
      case Errc::damaged_header: return "the file's header is damaged";
      case Errc::damaged_block: return "a block is damaged";
      case Errc::damaged_directory: return "the directory's id is damaged in both copies";
      case Errc::damaged_name: return "the name does not decode";
      case Errc::damaged_volume: return "the volume file is damaged";
      case Errc::unsupported_format: return "the format is not supported by this version";
      case Errc::not_a_volume: return "there is no ecfs volume here";
      case Errc::volume_exists: return "there is an ecfs volume already";
      case Errc::kdf_too_costly: return "the Argon2id costs are over the limits (4 GiB, 100 passes)";
      case Errc::bad_passphrase: return "the passphrase is empty, holds a NUL byte or is longer than 1024 bytes";
      case Errc::locked: return "the lower directory is in use by another ecfs daemon";
      case Errc::crypto_failure: return "the cryptographic library failed";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& ecfs_category() noexcept {
  static const Category category;
  return category;
}

}  // namespace ecfs
