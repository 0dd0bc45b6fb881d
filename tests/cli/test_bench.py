#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs-bench: every workload at a tiny size, its reports, and that nothing is left behind whatever fails."""

import copy
import glob
import json
import os
import re
import shutil
import signal
import subprocess

from common import BIN, BUILD, ROOT, World, check, eventually, main, mounts, need_fuse, need_root, pids_of, run

BENCH = str(BUILD / "tools" / "bench" / "ecfs-bench")
# The caches of the machine are no business of a test that runs beside others.
TINY = ["--warm", "--scale", "0.01"]


def bench(w, *args, **more):
    more.setdefault("timeout", 300)
    return run([BENCH, "--dir", w.path("work"), *args], cwd=w.dir, **more)


def world():
    w = World()
    os.mkdir(w.path("work"))
    return w


def nothing_left(w):
    """No file, mount or process below the work directory."""
    work = w.path("work")
    assert os.listdir(work) == [], os.listdir(work)
    below = [m for m in mounts(work) if m[0] != work]
    assert below == [], below
    left = [(p, open(f"/proc/{p}/cmdline").read()) for p in pids_of(work + "/ecfs-bench-")]
    assert left == [], left


def start(w, *args, env=None):
    return w.start([BENCH, "--dir", w.path("work"), *args], cwd=w.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)


def end_of(process, seconds=120):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


def working_on_ecfs(w):
    """Waits until a workload runs on the ecfs mount."""
    assert eventually(lambda: glob.glob(w.path("work") + "/ecfs-bench-*/ecfs/mount/files/*"), 60)


def daemons(w):
    return [p for p in pids_of(w.path("work")) if b"ecfsd" in open(f"/proc/{p}/cmdline", "rb").read().split(b"\0")[0]]


# Short runs, of which there are so many that it never ends by itself.
LONG = ["--warm", "--workloads", "postmark", "--scale", "0.1", "--repeat", "1000"]


def test_every_workload():
    need_fuse()
    with world() as w:
        ran = check(bench(w, "--suite", "all", *["--warm", "--scale", "0.001"], "--repeat", "2", "--json", "r.json", "--html", "r.html", "--csv", "r.csv"), 0)
        nothing_left(w)
        r = json.load(open(w.path("r.json")))
        runs = {}
        for one in r["runs"]:
            assert one["failure"] == "" and one["operations"] > 0, one
            runs.setdefault(one["workload"], []).append(one)
        assert r["workloads"]
        for workload in r["workloads"]:
            if workload["unavailable"]:
                continue
            of = runs[workload["name"]]
            assert [(one["round"], one["target"]) for one in of] == [(1, "plain"), (1, "ecfs"), (2, "plain"), (2, "ecfs")], of
            # One seed: the same operations, on whatever target.
            assert len({(one["operations"], one["operations_hash"]) for one in of}) == 1, of
            for one in of:
                assert {s["figure"] for s in one["samples"]} == {f["name"] for f in workload["figures"] if not f["cold"]}, one
            for figure in workload["figures"]:
                assert figure["cold"] or figure["name"] in ran.out, figure
        ecfs = [s for one in r["runs"] if one["target"] == "ecfs" for s in one["samples"]]
        assert all(s["fuse_messages"] is not None and s["daemon"]["peak_kib"] > 0 for s in ecfs)
        if os.stat(w.dir).st_dev != os.stat("/dev/shm").st_dev:
            assert all(s["lower_bytes_written"] is not None for s in ecfs) and any(s["lower_bytes_written"] > 0 for s in ecfs)
        assert len(open(w.path("r.csv")).read().splitlines()) == 2
        check_schema(r)
        check_compare(w, r)


def check_schema(r):
    try:
        import jsonschema
    except ImportError:
        print("SKIP: the schema: python3-jsonschema is not installed")
        return
    schema = json.load(open(ROOT / "docs" / "bench.schema.json"))
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(r, schema)
    # It does say no.
    for change in (lambda x: x.pop("machine"), lambda x: x["runs"][0].update(round=0), lambda x: x.update(new=1),
                   lambda x: x["runs"][0]["samples"][0].update(value="fast")):
        broken = copy.deepcopy(r)
        change(broken)
        assert list(jsonschema.Draft7Validator(schema).iter_errors(broken))


def check_compare(w, r):
    """The same file twice is no change; one with a slower ecfs is a regression."""
    # Three rounds without noise, so that the answer is certain.
    base = copy.deepcopy(r)
    base["runs"] = []
    for number in (1, 2, 3):
        for one in r["runs"]:
            if one["round"] == 1:
                base["runs"].append(dict(copy.deepcopy(one), round=number))
    slow = copy.deepcopy(base)
    figures = {f["name"]: f for workload in r["workloads"] for f in workload["figures"]}
    for one in slow["runs"]:
        for s in one["samples"]:
            if one["target"] == "ecfs":
                s["value"] *= 0.8 if figures[s["figure"]]["better"] == "higher" else 1.25
    for name, content in (("old.json", base), ("new.json", slow)):
        w.write(name, json.dumps(content))
    compare = lambda *args: run([BENCH, "compare", *args], cwd=w.dir)
    assert "without a change" in check(compare("old.json", "old.json"), 0, err="").out
    assert "REGRESSION" in check(compare("old.json", "new.json"), 1, err="").out
    check(compare("old.json", "new.json", "--threshold", "30"), 0, err="")
    assert "faster" in check(compare("new.json", "old.json"), 0, err="").out
    w.write("no.json", "{}")
    assert "not a report" in check(compare("old.json", "no.json"), 1, "").err


def test_ordinary_user():
    need_fuse()
    need_root()
    with world() as w:
        os.chmod(w.dir, 0o711)
        os.chown(w.path("work"), 65534, 65534)
        # Programs that this user can get at, wherever the build directory is.
        for program, at in ((BENCH, "bench/ecfs-bench"), (BIN / "ecfs", "ecfs/ecfs"), (BUILD / "ecfsd", "../ecfsd")):
            place = os.path.normpath(w.path("build/tools/" + at))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy2(program, place)
        ran = run([w.path("build/tools/bench/ecfs-bench"), "--scale", "0.01", "--workloads", "dd,postmark", "--repeat", "1", "--json", "r.json"],
                  cwd=w.path("work"), user=65534, env={"PATH": os.environ["PATH"], "HOME": w.path("work")}, timeout=300)
        check(ran, 0, err="")
        # Without root no caches are dropped; everything else is there, the daemon's bytes, too.
        assert "dd-read is left out" in ran.out and "dd-write" in ran.out, ran.out
        r = json.load(open(w.path("work/r.json")))
        assert not r["caches_dropped"]
        assert all(s["lower_bytes_written"] is not None for one in r["runs"] if one["target"] == "ecfs" for s in one["samples"])
        os.unlink(w.path("work/r.json"))
        nothing_left(w)


def test_mistakes():
    with world() as w:
        for args, word in ((["--targets", "nothing"], "nothing"), (["--workloads", "nothing"], "nothing"), (["--suite", "x"], "suite"),
                           (["--repeat", "0"], "repeat"), (["--scale", "-1"], "scale"), (["--dir", w.path("none")], "none"), (["compare"], "OLD")):
            ran = check(run([BENCH, *args], cwd=w.path("work")), 2, "")
            assert word in ran.err, ran
        assert "No such file" in check(bench(w, *TINY, "--json", "none/r.json"), 1, "").err
        nothing_left(w)


def test_not_enough_room():
    with world() as w:
        ran = check(bench(w, "--workloads", "dd", "--scale", "1000"), 1, "") if shutil.disk_usage(w.dir).free < 130e9 else \
            check(bench(w, "--workloads", "fsmark-4threads", "--scale", "1000"), 1, "")
        assert re.search(r"not enough room: [0-9.]+ GiB are needed, [0-9.]+ [GM]iB are free, [0-9.]+ GiB are missing", ran.err), ran
        nothing_left(w)


def test_interrupted():
    need_fuse()
    with world() as w:
        for sent in (signal.SIGINT, signal.SIGTERM):
            # The plain directory has its first run behind it when ecfs works.
            p = start(w, *LONG, "--json", "r.json", "--html", "r.html")
            working_on_ecfs(w)
            p.send_signal(sent)
            code, out, err = end_of(p)
            assert code == 128 + sent, (code, out, err)
            r = json.load(open(w.path("r.json")))
            assert r["interrupted"] and r["runs"] and r["runs"][0]["target"] == "plain" and not any(one["failure"] for one in r["runs"]), r["runs"]
            assert "Interrupted" in out and "postmark" in out and "Interrupted" in open(w.path("r.html")).read()
            nothing_left(w)


def test_killed():
    need_fuse()
    with world() as w:
        # The process that waits, and the one that works: each cleans up after the other.
        for who in (lambda p: p.pid, lambda p: int(open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()[0])):
            p = start(w, *LONG)
            working_on_ecfs(w)
            os.kill(who(p), signal.SIGKILL)
            end_of(p)
            assert eventually(lambda: not os.listdir(w.path("work")), 30)
            nothing_left(w)


def test_daemon_dies():
    need_fuse()
    with world() as w:
        p = start(w, "--warm", "--workloads", "fsmark-1000,dd", "--scale", "2", "--repeat", "1", "--targets", "ecfs,plain", "--json", "r.json")
        working_on_ecfs(w)
        os.kill(daemons(w)[0], signal.SIGKILL)
        code, out, err = end_of(p)
        r = json.load(open(w.path("r.json")))
        failed = [one for one in r["runs"] if one["failure"]]
        assert code == 1 and len(failed) == 1 and failed[0]["target"] == "ecfs", (code, err, r["runs"])
        assert "killed by signal 9" in failed[0]["failure"] and "killed by signal 9" in err and "failed" in out
        # It goes on with what is left, on a new mount.
        assert {(one["workload"], one["target"]) for one in r["runs"] if not one["failure"]} >= {("dd", "plain"), ("dd", "ecfs"), ("fsmark-1000", "plain")}
        nothing_left(w)


def test_daemon_hangs():
    need_fuse()
    with world() as w:
        p = start(w, *LONG)
        working_on_ecfs(w)
        os.kill(daemons(w)[0], signal.SIGSTOP)
        p.send_signal(signal.SIGINT)
        code, _, err = end_of(p)
        assert code == 130, (code, err)
        nothing_left(w)


def fake(w, text):
    """A program gocryptfs of our own; the environment that finds it."""
    os.makedirs(w.path("bin"), exist_ok=True)
    w.write("bin/gocryptfs", "#!/bin/sh\n" + text, 0o755)
    return dict(os.environ, PATH=w.path("bin") + ":" + os.environ["PATH"])


def test_target_fails():
    need_fuse()
    with world() as w:
        args = [*TINY, "--workloads", "dd", "--repeat", "1", "--targets", "plain,gocryptfs", "--json", "r.json"]
        init_only = 'case "$*" in *-init*) exit 0 ;; esac\n'
        for text, word in (("echo cannot make it >&2; exit 3\n", "exit status 3: cannot make it"),
                           (init_only + "echo cannot mount it >&2; exit 4\n", "exit status 4: cannot mount it")):
            ran = check(bench(w, *args, env=fake(w, text)), 1)
            assert word in ran.err and word in ran.out, ran
            assert [one["target"] for one in json.load(open(w.path("r.json")))["runs"] if not one["failure"]] == ["plain"]
            nothing_left(w)
        # One that never mounts, and its child.
        p = start(w, *args, env=fake(w, init_only + "sleep 1000 & echo $! >started; wait\n"))
        assert eventually(lambda: pids_of(w.path("bin/gocryptfs")), 60)
        p.send_signal(signal.SIGINT)
        code, _, err = end_of(p)
        assert code == 130, (code, err)
        nothing_left(w)


def test_full_disk():
    need_fuse()
    need_root()
    with world() as w:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "none", w.path("work")], check=True)
        p = start(w, "--warm", "--workloads", "postmark", "--scale", "2", "--repeat", "1", "--targets", "ecfs", "--json", w.path("r.json"))
        working_on_ecfs(w)
        filler = w.path("work/filler")
        with open(filler, "wb") as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
                    f.flush()
            except OSError:
                pass
        code, _, err = end_of(p)
        assert code == 1 and "No space left on device" in err, (code, err)
        os.unlink(filler)
        nothing_left(w)


if __name__ == "__main__":
    main(globals())
