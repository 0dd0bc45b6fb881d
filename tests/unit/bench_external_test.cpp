// SPDX-License-Identifier: GPL-3.0-or-later
// What fio 3.33, fs_mark 3.3, dbench 4.0, PostMark 1.51 and bonnie++ 2.00a printed in small runs, and what is understood of it.
#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

#include "external.hpp"

using namespace ecfs::bench;

namespace {

constexpr const char* kFio =
    "3;fio-3.33;server;0;0;6487;101359;20453;64;3;6548;18.502123;204.071274;49;12872;1821.563989;2776.060929;1.000000%=197;5.000000%=313;"
    "10.000000%=395;20.000000%=464;30.000000%=522;40.000000%=643;50.000000%=749;60.000000%=847;70.000000%=987;80.000000%=1859;"
    "90.000000%=4882;95.000000%=8159;99.000000%=12779;99.500000%=12779;99.900000%=12910;99.950000%=12910;99.990000%=12910;0%=0;0%=0;0%=0;"
    "112;12877;1840.066112;2781.268091;0;0;0.000000%;0.000000;0.000000;1705;26640;5312;64;3;4101;27.208591;226.296045;383;14984;"
    "4754.624362;3053.856097;1.000000%=946;5.000000%=1105;10.000000%=1318;20.000000%=2211;30.000000%=2768;40.000000%=3522;50.000000%=4292;"
    "60.000000%=4751;70.000000%=5275;80.000000%=6455;90.000000%=9502;95.000000%=11075;99.000000%=13041;99.500000%=13172;99.900000%=15007;"
    "99.950000%=15007;99.990000%=15007;0%=0;0%=0;0%=0;780;14998;4781.832953;3047.259601;0;0;0.000000%;0.000000;0.000000;0.000000%;"
    "39.682540%;31;0;13;0.1%;0.1%;0.2%;0.5%;1.0%;1.9%;96.2%;0.00%;0.00%;0.00%;0.00%;0.06%;0.06%;1.27%;19.04%;19.28%;17.40%;10.49%;8.98%;"
    "18.68%;4.73%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;0.00%;vda;623;278;0;15;642;683;1346;20.51%\n";

constexpr const char* kFsMark = R"(
#  fs_mark  -d  d  -n  50  -s  262144  -w  16384  -S  1  -t  1 
#	Version 3.3, 1 thread(s) starting at Tue Dec  1 04:38:07 2026
#	Sync method: INBAND FSYNC: fsync() per file in write loop.
#	Directories:  no subdirectories used
#	File names: 40 bytes long, (16 initial bytes of time stamp with 24 random bytes at end of name)
#	Files info: size 262144 bytes, written with an IO size of 16384 bytes per write
#	App overhead is time in microseconds spent in the test not doing file writing related system calls.

FSUse%        Count         Size    Files/sec     App Overhead
    72           50       262144        338.0              908
)";

constexpr const char* kDbench = R"(   1     32967    96.98 MB/sec  execute   2 sec  latency 21.079 ms
   1  cleanup   3 sec
   0  cleanup   3 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX       8664     0.037     7.247
 ReadX          13482     0.006     5.331
 Flush            602     2.538    23.673

Throughput 96.9801 MB/sec  1 clients  1 procs  max_latency=23.692 ms
)";

constexpr const char* kPostmark = R"(PostMark v1.51 : 8/14/01
Reading configuration from file 'pm.cf'
Creating files...Done
Performing transactions..........Done
Deleting files...Done
Time:
	2 seconds total
	2 seconds of transactions (250 per second)

Files:
	348 created (174 per second)
		Creation alone: 100 files (100 per second)
)";

constexpr const char* kBonnieFile =
    "1.98,2.00a,vm,1,1,300M,,8192,5,,,428995,29,403249,36,,,+++++,+++,+++++,+++,,,,,,,,,,,,,,,,,,,30668us,7180us,,20146us,40221us,,,,,,\n";
constexpr const char* kBonnieFiles =
    "1.98,2.00a,vm,1,1,,,,,,,,,,,,,,,,,16,,,,,5766,52,+++++,+++,+++++,+++,+++++,+++,+++++,+++,+++++,+++,,,,,,,18404us,41537us,14490us,5788us,"
    "6531us,9878us\n";

}  // namespace

TEST_SUITE("bench external") {
  TEST_CASE("recorded outputs") {
    CHECK(parse_fio(kFio) == Values{{"external-fio", 0.064}, {"external-fio-iops", 20453 + 5312}});
    CHECK(parse_fio("fio: note about a queue\n" + std::string(kFio)).size() == 2);
    CHECK(parse_fs_mark(kFsMark) == Values{{"external-fs_mark", 338.0}});
    CHECK(parse_dbench(kDbench) == Values{{"external-dbench", 96.9801}});
    CHECK(parse_postmark(kPostmark) == Values{{"external-postmark", 250}});
    CHECK(parse_bonnie(kBonnieFile) == Values{{"external-bonnie-out-block", 428995}, {"external-bonnie-rewrite", 403249}});
    CHECK(parse_bonnie(kBonnieFiles) == Values{{"external-bonnie-seq-create", 5766}});
  }

  TEST_CASE("nothing else is taken for an output") {
    for (const std::string text : {"", "killed\n", "3;fio-3.33;server;0;5;1\n", "FSUse%        Count         Size    Files/sec     App Overhead\n",
                                   "Throughput unknown\n", "2 seconds of transactions (", "1.98,2.00a,vm,1\n"}) {
      INFO(text);
      CHECK_THROWS_AS(parse_fio(text), std::runtime_error);
      CHECK_THROWS_AS(parse_fs_mark(text), std::runtime_error);
      CHECK_THROWS_AS(parse_dbench(text), std::runtime_error);
      CHECK_THROWS_AS(parse_postmark(text), std::runtime_error);
      CHECK_THROWS_AS(parse_bonnie(text), std::runtime_error);
    }
  }

  TEST_CASE("their figures have names of their own") {
    std::set<std::string> names;
    for (const auto* list : {&all_workloads(), &external_workloads()})
      for (const Workload& w : *list)
        for (const Figure& f : w.figures) CHECK(names.insert(f.name).second);
    const auto known = [&](const Values& values) {
      for (const auto& [name, value] : values) CHECK(names.contains(name));
    };
    known(parse_fio(kFio)), known(parse_fs_mark(kFsMark)), known(parse_dbench(kDbench)), known(parse_postmark(kPostmark));
    known(parse_bonnie(kBonnieFile)), known(parse_bonnie(kBonnieFiles));
  }
}
