// SPDX-License-Identifier: GPL-3.0-or-later
#include "sqlite_work.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

namespace ecfs::crash {
namespace {

constexpr const char* kVfs = "ecfs-crash";
constexpr const char* kDatabase = "db";

// The files that are there, by name; all are in the volume's root.
struct World {
  Driver* driver;
  std::map<std::string, Thing> files;
  bool failed = false;
};

struct File : sqlite3_file {
  World* world;
  Thing thing;
  bool fresh;  // its directory entry is still to be synced, as the Unix VFS does at the first sync
};

World& world_of(sqlite3_vfs* vfs) { return *static_cast<World*>(vfs->pAppData); }
File& file_of(sqlite3_file* f) { return *static_cast<File*>(f); }

// SQLite is C: nothing may be thrown through it.
template <class F>
int guarded(World& world, int error, F call) {
  try {
    call();
    return SQLITE_OK;
  } catch (const std::exception&) {
    world.failed = true;
    return error;
  }
}

int close_file(sqlite3_file*) { return SQLITE_OK; }
int read_file(sqlite3_file* f, void* out, int n, sqlite3_int64 off) {
  const std::string& content = file_of(f).world->driver->content(file_of(f).thing);
  const auto size = static_cast<sqlite3_int64>(content.size());
  const auto have = static_cast<std::size_t>(std::clamp<sqlite3_int64>(size - off, 0, n));
  std::memset(out, 0, static_cast<std::size_t>(n));
  if (have) std::memcpy(out, content.data() + off, have);
  return have == static_cast<std::size_t>(n) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}
int write_file(sqlite3_file* f, const void* in, int n, sqlite3_int64 off) {
  File& file = file_of(f);
  return guarded(*file.world, SQLITE_IOERR_WRITE, [&] {
    file.world->driver->write(file.thing, static_cast<std::uint64_t>(off), std::string(static_cast<const char*>(in), static_cast<std::size_t>(n)));
  });
}
int truncate_file(sqlite3_file* f, sqlite3_int64 size) {
  File& file = file_of(f);
  return guarded(*file.world, SQLITE_IOERR_TRUNCATE, [&] { file.world->driver->truncate(file.thing, static_cast<std::uint64_t>(size)); });
}
int sync_file(sqlite3_file* f, int flags) {
  File& file = file_of(f);
  return guarded(*file.world, SQLITE_IOERR_FSYNC, [&] {
    file.world->driver->fsync(file.thing, (flags & SQLITE_SYNC_DATAONLY) != 0);
    if (std::exchange(file.fresh, false)) file.world->driver->fsync(kRootThing);
  });
}
int file_size(sqlite3_file* f, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(file_of(f).world->driver->size(file_of(f).thing));
  return SQLITE_OK;
}
int lock_file(sqlite3_file*, int) { return SQLITE_OK; }
int reserved(sqlite3_file*, int* out) {
  *out = 0;
  return SQLITE_OK;
}
int control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return 4096; }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }  // as the Unix VFS tells

const sqlite3_io_methods kMethods = {1,         close_file, read_file, write_file, truncate_file, sync_file,   file_size,       lock_file,
                                     lock_file, reserved,   control,   sector_size, characteristics, nullptr, nullptr, nullptr,
                                     nullptr,   nullptr,    nullptr};

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* f, int flags, int* out_flags) {
  World& world = world_of(vfs);
  File& file = file_of(f);
  file.pMethods = nullptr;
  if (!name) return SQLITE_CANTOPEN;  // no temporary files are needed
  return guarded(world, SQLITE_CANTOPEN, [&] {
    const auto there = world.files.find(name);
    file.fresh = there == world.files.end();
    if (file.fresh && !(flags & SQLITE_OPEN_CREATE)) throw std::runtime_error("not there");
    file.thing = file.fresh ? world.driver->create(kRootThing, name) : there->second;
    world.files[name] = file.thing;
    file.world = &world;
    file.pMethods = &kMethods;
    if (out_flags) *out_flags = flags;
  });
}
int delete_file(sqlite3_vfs* vfs, const char* name, int sync_dir) {
  World& world = world_of(vfs);
  if (!world.files.contains(name)) return SQLITE_IOERR_DELETE_NOENT;
  return guarded(world, SQLITE_IOERR_DELETE, [&] {
    world.driver->unlink(kRootThing, name);
    world.files.erase(name);
    if (sync_dir) world.driver->fsync(kRootThing);
  });
}
int access_file(sqlite3_vfs* vfs, const char* name, int, int* out) {
  *out = world_of(vfs).files.contains(name);
  return SQLITE_OK;
}
int full_name(sqlite3_vfs*, const char* name, int n, char* out) {
  sqlite3_snprintf(n, out, "%s", name);
  return SQLITE_OK;
}
int randomness(sqlite3_vfs*, int n, char* out) {
  std::memset(out, 7, static_cast<std::size_t>(n));
  return n;
}
int no_sleep(sqlite3_vfs*, int us) { return us; }
int no_time(sqlite3_vfs*, double* out) {
  *out = 2460000.5;
  return SQLITE_OK;
}

void run(sqlite3* db, const std::string& sql) {
  char* error = nullptr;
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error) == SQLITE_OK) return;
  const std::string text = error ? error : "?";
  sqlite3_free(error);
  throw std::runtime_error("SQLite: " + sql.substr(0, 60) + ": " + text);
}

std::string ask(sqlite3* db, const char* sql) {
  sqlite3_stmt* s = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &s, nullptr) != SQLITE_OK) return sqlite3_errmsg(db);
  std::string out;
  if (sqlite3_step(s) == SQLITE_ROW)
    out = reinterpret_cast<const char*>(sqlite3_column_text(s, 0));
  else
    out = sqlite3_errmsg(db);
  sqlite3_finalize(s);
  return out;
}

void work(Driver& driver, Random& rng, const char* mode) {
  World world{&driver, {}};
  sqlite3_vfs vfs{};
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(File);
  vfs.mxPathname = 64;
  vfs.zName = kVfs;
  vfs.pAppData = &world;
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  vfs.xAccess = access_file;
  vfs.xFullPathname = full_name;
  vfs.xRandomness = randomness;
  vfs.xSleep = no_sleep;
  vfs.xCurrentTime = no_time;
  if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK) throw std::runtime_error("SQLite takes no VFS");
  sqlite3* db = nullptr;
  const int opened = sqlite3_open_v2(kDatabase, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, kVfs);
  if (opened != SQLITE_OK) throw std::runtime_error("SQLite cannot open its database");
  // EXTRA: with a rollback journal a transaction is only durable once the journal's removal is. A WAL without shared memory needs exclusive locking.
  const bool wal = std::strcmp(mode, "WAL") == 0;
  run(db, std::string("PRAGMA locking_mode=") + (wal ? "EXCLUSIVE" : "NORMAL") + "; PRAGMA journal_mode=" + mode +
              "; PRAGMA synchronous=EXTRA; PRAGMA wal_autocheckpoint=12;");
  run(db, "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)");
  for (int n = 1; n <= 14; ++n) {
    std::string text;
    for (auto left = 20 + rng() % 3000; left > 0; --left) text += static_cast<char>('a' + rng() % 26);
    run(db, "BEGIN; INSERT INTO t VALUES (" + std::to_string(n) + ", '" + text + "'); UPDATE t SET text = text || 'x' WHERE n % 3 = " +
                std::to_string(n % 3) + "; COMMIT;");
    driver.promise(n);
  }
  sqlite3_close(db);
  sqlite3_vfs_unregister(&vfs);
  if (world.failed) throw std::runtime_error("a call that SQLite made failed");
}

}  // namespace

void sqlite_delete(Driver& driver, Random& rng) { work(driver, rng, "DELETE"); }
void sqlite_wal(Driver& driver, Random& rng) { work(driver, rng, "WAL"); }

std::vector<std::string> check_sqlite(const History& history, const Plan& plan, const Seen& seen, const std::string& scratch) {
  const int promised = history.promised(plan);
  if (!seen.entries.contains(kDatabase)) {
    if (promised > 0) return {"SQLite's database is gone"};
    return {};
  }
  const std::string dir = scratch + "/sqlite";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  for (const char* name : {"db", "db-journal", "db-wal"})
    if (const auto e = seen.entries.find(name); e != seen.entries.end()) std::ofstream(dir + "/" + name, std::ios::binary) << e->second.content;
  sqlite3* db = nullptr;
  std::vector<std::string> out;
  if (sqlite3_open((dir + "/db").c_str(), &db) != SQLITE_OK) out.push_back("SQLite does not open its database");
  if (const auto sound = ask(db, "PRAGMA integrity_check"); sound != "ok") out.push_back("SQLite's integrity check: " + sound);
  if (promised > 0) {
    const std::string rows = ask(db, "SELECT count(*) FROM t");
    if (std::atoi(rows.c_str()) < promised) out.push_back("SQLite had committed " + std::to_string(promised) + " transactions, and has " + rows);
  }
  sqlite3_close(db);
  return out;
}

}  // namespace ecfs::crash
