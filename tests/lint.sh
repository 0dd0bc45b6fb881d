#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Checks what no compiler does: that the arrows between modules point down only, and a few rules of the house.
#   lint.sh              the source tree (ECFS_SRC, or the one that this script is in)
#   lint.sh --self-test  that each rule finds what it is there for
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
root=${ECFS_SRC:-$here}
failed=0

files() {
  if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1 && [ -e "$root/.git" ]; then
    git -C "$root" ls-files -co --exclude-standard | sort -u | while read -r f; do if [ -f "$root/$f" ]; then printf '%s\n' "$f"; fi; done
  else
    (cd "$root" && find . -type f -printf '%P\n' | sort)
  fi
}

complain() { # RULE TEXT
  failed=1
  printf 'lint: %s: %s\n' "$1" "$2"
}

# forbid RULE PATTERN WHERE [EXCEPT]: no line of the files that match WHERE and not EXCEPT matches PATTERN.
forbid() {
  local rule=$1 pattern=$2 where=$3 except=${4:-^$} f hit chosen=()
  while read -r f; do
    if [[ $f =~ $where && ! $f =~ $except ]]; then chosen+=("$f"); fi
  done <<<"$list"
  ((${#chosen[@]})) || return 0
  while read -r hit; do complain "$rule" "$hit"; done < <(cd "$root" && grep -nIPH -m 5 -- "$pattern" "${chosen[@]}" | cut -c1-200 || true)
}

# may_include MODULE HEADERS...: the module (header and source) includes no other of our headers.
may_include() {
  local module=$1 f header
  shift
  for f in "include/ecfs/$module.hpp" "src/$module.cpp"; do
    [ -f "$root/$f" ] || continue
    while read -r header; do
      [[ " $module $* " == *" $header "* ]] || complain 'arrows' "$f includes $header.hpp, which is not below it"
    done < <(grep -oP '^#include "ecfs/\K[a-z_]+(?=\.hpp")' "$root/$f" || true)
    if grep -nP '^#include "daemon/' "$root/$f" >&2; then complain 'arrows' "$f includes a header of the daemon"; fi
  done
}

check_tree() {
  list=$(files)
  [ -n "$list" ] || { complain 'files' "there are none in $root"; return; }

  # The arrows. A word of ours in the pattern would find this file: the tests are not looked at, or the word is cut.
  forbid 'libfuse in ops and session alone' '#include *[<"](fuse3/)?(fuse|fuse_lowlevel|fuse_common)\.h' '^(src|include|tools)/' '^src/daemon/(ops|session)[a-z_]*\.(cpp|hpp)$'
  forbid 'libsodium and OpenSSL in crypto and secret alone' '#include *[<"](sodium|openssl/)' '^(src|include|tools|tests)/.*\.(cpp|hpp)$' '^(src/(crypto|secret)\.cpp|tests/unit/crypto_test\.cpp)$'
  # Excepted is what is not on the lower filesystem: the control socket's directory, /proc, the mount as its users see it.
  local unambiguous='pread|pwrite|preadv|pwritev|openat|openat2|ftruncate|fallocate|fstatat|statx|mkdirat|mknodat|unlinkat|renameat|renameat2|linkat|symlinkat|readlinkat|fchownat|fchmodat|utimensat|futimens|getdents64|fdatasync|fgetxattr|fsetxattr|flistxattr|fremovexattr|lgetxattr|lsetxattr|llistxattr|lremovexattr|copy_file_range'
  local qualified="$unambiguous|open|stat|lstat|fstat|mkdir|mknod|unlink|rename|link|symlink|readlink|chmod|fchmod|lchown|fchown|chown|truncate|fsync|getxattr|setxattr|listxattr|removexattr|lseek|flock|posix_fadvise"
  forbid 'system calls on the lower filesystem in lower alone' "^(?:(?!//).)*(?<![\\w:.>])(::($qualified)|($unambiguous))\\s*\\(" '^(src|include)/' '^(src/lower\.cpp|src/control_path\.cpp|include/ecfs/lower\.hpp|src/daemon/(identity|session|control|main|bystander)[a-z_]*\.(cpp|hpp))$'
  forbid 'spdlog never in libecfs' 'spdlog' '^(include/|src/[^/]*$)'
  forbid 'libecfs never prints' '\b(std::cout|std::cerr|std::clog|printf|fprintf|puts|fputs|perror|syslog) *\(?' '^(include/|src/[^/]*\.cpp$)'
  forbid 'the daemon never sees keyslots' 'keyslot\.hpp' '^src/daemon/'
  forbid 'filesystem and node know nothing above them' '#include "daemon/(ops|session|control|stats|messages)\.hpp' '^src/daemon/(filesystem|directory|foreign|attributes|contents|shared|node|identity|session_marker)\.(cpp|hpp)$'
  may_include error
  may_include endian
  may_include unique_fd
  may_include secret
  may_include layout
  may_include format endian layout error
  may_include crypto secret format endian error layout
  may_include lower error unique_fd
  may_include encrypted_file crypto layout lower error secret unique_fd format
  may_include name_cipher crypto format endian error
  may_include volume crypto lower error endian unique_fd format
  may_include keyslot volume crypto secret error format endian

  # The house.
  local f lines lines_of head first=()
  while read -r f; do
    case $f in
      *.cpp | *.hpp | *.c | *.h | *.py | *.sh | tools/quickstart | tools/check | tools/build-deps | tools/ecfs-rescue | .ci/run)
        mapfile -n 3 first <"$root/$f"
        [[ ${first[*]} == *"SPDX-License-Identifier: GPL-3.0-or-later"* ]] || complain 'SPDX line' "$f has none in its first three lines" ;;
    esac
    case $f in
      *.py)
        [[ ! -x $root/$f || ${first[0]-} == $'#!/usr/bin/python3\n' ]] || complain 'python' "$f does not start with #!/usr/bin/python3" ;;
    esac
    if [[ $f =~ ^(src|include|tools)/ ]]; then
      mapfile -t lines_of <"$root/$f"
      lines=${#lines_of[@]}
      [ "$lines" -le 600 ] || complain 'length' "$f has $lines lines, more than 600"
    fi
  done <<<"$list"
  # A test that is not in the list is not run.
  while read -r f; do
    case $f in
      tests/unit/*.cpp) head="'${f#tests/}'" ;;
      tests/cli/test_*.py) head=${f#tests/cli/test_} head="'${head%.py}'" ;;
      tests/mount/*.py)
        # What does not run by itself is a module of others.
        grep -q '^if __name__\|^common\.main(' "$root/$f" || continue
        head=${f#tests/mount/} head="'${head%.py}'" ;;
      *) continue ;;
    esac
    grep -qF -- "$head" "$root/tests/meson.build" 2>/dev/null || complain 'registered' "$f is not in tests/meson.build"
  done <<<"$list"
  forbid 'paths of one machine' '(/wor[k]/|/roo[t]/|/hom[e]/[a-z]+/|-I/tm[p]|/tm[p]/build|\.\./share[d])' '.' '^(LICENSE$|tests/fuzz/corpus/|tests/vectors/.*\.tar)'
  forbid 'unfinished' '\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b' '.' '^(LICENSE$|tests/fuzz/corpus/|tests/vectors/.*\.tar)'
}

# Each line: rule, file, content. A tree that holds only this must be found fault with, by that rule.
self_test() {
  local spdx='// SPDX-License-Identifier: GPL-3.0-or-later' bad=0 out rule file content long
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  try() { # RULE FILE CONTENT
    rule=$1 file=$2 content=$3
    find "$tree" -mindepth 1 -delete
    mkdir -p "$tree/$(dirname "$file")" "$tree/src"
    printf '%s\n#include "ecfs/error.hpp"\nint f() { return lower::pread(1); }\n' "$spdx" >"$tree/src/clean.cpp"
    printf '%s\n' "$content" >"$tree/$file"
    out=$(ECFS_SRC=$tree bash "$0" 2>&1) && { echo "self-test: nothing found: $rule ($file)"; bad=1; return; }
    [[ $out == *"lint: $rule: $file"* ]] || { printf 'self-test: another fault than %s in %s:\n%s\n' "$rule" "$file" "$out"; bad=1; }
    [ "$(wc -l <<<"$out")" = 2 ] || { printf 'self-test: not one fault alone for %s:\n%s\n' "$rule" "$out"; bad=1; }
  }
  clean() { # FILE CONTENT: must pass
    find "$tree" -mindepth 1 -delete
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "$2" >"$tree/$1"
    out=$(ECFS_SRC=$tree bash "$0" 2>&1) || { printf 'self-test: found fault with %s:\n%s\n' "$1" "$out"; bad=1; }
  }
  try 'libfuse in ops and session alone' src/daemon/node.cpp "$spdx"$'\n#include <fuse_lowlevel.h>'
  try 'libfuse in ops and session alone' src/daemon/filesystem.hpp "$spdx"$'\n#include <fuse3/fuse_lowlevel.h>'
  try 'libsodium and OpenSSL in crypto and secret alone' src/volume.cpp "$spdx"$'\n#include <sodium.h>'
  try 'libsodium and OpenSSL in crypto and secret alone' tools/ecfs/init.cpp "$spdx"$'\n#include <openssl/evp.h>'
  try 'system calls on the lower filesystem in lower alone' src/encrypted_file.cpp "$spdx"$'\nint g() { return ::pwrite(1, 0, 0, 0); }'
  try 'system calls on the lower filesystem in lower alone' src/daemon/filesystem.cpp "$spdx"$'\nint g() { return openat(1, "", 0); }'
  try 'system calls on the lower filesystem in lower alone' src/daemon/node.cpp "$spdx"$'\nint g() { return ::rename("", ""); }'
  try 'spdlog never in libecfs' src/volume.cpp "$spdx"$'\n#include <spdlog/spdlog.h>'
  try 'libecfs never prints' src/volume.cpp "$spdx"$'\nint g() { return std::printf("x"); }'
  try 'the daemon never sees keyslots' src/daemon/main.cpp "$spdx"$'\n#include "ecfs/keyslot.hpp"'
  try 'filesystem and node know nothing above them' src/daemon/node.cpp "$spdx"$'\n#include "daemon/ops.hpp"'
  try 'arrows' src/lower.cpp "$spdx"$'\n#include "ecfs/crypto.hpp"'
  try 'arrows' include/ecfs/layout.hpp "$spdx"$'\n#include "ecfs/format.hpp"'
  try 'SPDX line' src/other.cpp 'int x;'
  try 'SPDX line' .ci/run '#!/bin/bash'
  chmod_py() { chmod +x "$tree/$1"; }
  find "$tree" -mindepth 1 -delete; mkdir -p "$tree/tests"; printf '#!/usr/bin/env python3\n# SPDX-License-Identifier: GPL-3.0-or-later\n' >"$tree/tests/a.py"; chmod_py tests/a.py
  out=$(ECFS_SRC=$tree bash "$0" 2>&1) && { echo 'self-test: nothing found: python'; bad=1; }
  long=$spdx$(printf '\nint x%d;' {1..601})
  try 'length' tools/ecfs/long.cpp "$long"
  try 'registered' tests/unit/new_test.cpp "$spdx"
  try 'registered' tests/mount/new.py $'# SPDX-License-Identifier: GPL-3.0-or-later\ncommon.main([])'
  clean tests/mount/module.py '# SPDX-License-Identifier: GPL-3.0-or-later'
  try 'paths of one machine' docs/a.md "see /wor""k/main/x"
  try 'paths of one machine' docs/a.md "see ../share""d/design"
  try 'unfinished' docs/a.md "a TOD""O here"
  clean src/daemon/ops.cpp "$spdx"$'\n#include <fuse_lowlevel.h>\nint g() { return fs.link(1) + Filesystem::rename(2) + lower::pread(3) + file->fsync(4); }'
  clean src/lower.cpp "$spdx"$'\n#include "ecfs/error.hpp"\nint g() { return ::pread(1, 0, 0, 0); }'
  clean docs/b.md 'mkstemp("ecfs-XXXXXX")'
  if [ "$bad" != 0 ]; then exit 1; fi
  echo 'lint self-test: every rule finds its fault'
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit 0
fi
check_tree
if [ "$failed" != 0 ]; then
  echo 'lint: failed'
  exit 1
fi
echo "lint: $(wc -l <<<"$list") files, nothing to complain of"
