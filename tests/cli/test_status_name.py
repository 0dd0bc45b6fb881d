#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""ecfs status and ecfs name."""

import json
import os

from common import World, check, ecfs, fails, main, need_fuse


def test_status():
    with World() as w:
        lower, target, _ = w.mounted()
        with open(target + "/file", "w") as f:
            f.write("x")
        s = json.loads(check(ecfs("status", "--json", target), 0, err="").out)
        info = json.loads(ecfs("info", "--json", lower).out)
        assert s["volume"]["uuid"] == info["uuid"]
        assert (s["lower"], s["mount"], s["cipher"], s["names"], s["read_only"]) == (lower, target, "aes-256-gcm", "encrypted", False)
        assert s["mode"] == "exclusive" and s["pid"] in w.daemons() and 0 <= s["uptime_seconds"] < 60
        m = s["messages"]["WRITE"]
        assert m["count"] == 1 and m["total_ns"] >= m["max_ns"] > 0 and m["mean_ns"] == m["total_ns"] // m["count"], m
        assert set(s["caches"]) >= {"nodes", "directories", "files", "pinned"}
        assert isinstance(s["lower_bytes_written"], int) and s["lower_bytes_written"] >= 0
        assert 0 < s["descriptors"]["open"] <= s["descriptors"]["limit"]
        assert all(v == 0 for v in s["damage"].values()) and set(s["damage"]) >= {"blocks", "headers", "names", "foreign"}
        text = check(ecfs("status", target + "/"), 0, err="").out
        for line in (f"volume      {info['uuid']}", f"lower       {lower}", f"mount       {target}", "mode        exclusive"):
            assert line in text.splitlines(), text
        assert any(l.split()[:2] == ["WRITE", "1"] for l in text.splitlines()), text
        check(ecfs("umount", target), 0)


def test_name():
    with World() as w:
        lower, target, _ = w.mounted()
        os.mkdir(target + "/dir")
        deep = target + "/dir/" + "n" * 255
        open(deep, "w").close()
        os.symlink("dir", target + "/link")
        enc = check(ecfs("name", target, deep), 0, err="").out
        assert enc.endswith("\n") and os.path.exists(enc[:-1]) and enc.startswith(lower + "/") and "ecfs.long." in enc
        assert ecfs("name", target, "dir/" + "n" * 255).out == enc
        assert ecfs("name", target, "/dir/" + "n" * 255).code == 1  # absolute, and neither here nor there
        assert ecfs("name", ".", "n" * 255, cwd=target + "/dir").code == 15
        assert ecfs("name", target, "n" * 255, cwd=target + "/dir").out == enc
        assert ecfs("name", target, "../dir//./" + "n" * 255, cwd=target + "/dir").out == enc
        assert ecfs("name", "-0", target, deep).out == enc[:-1] + "\0"
        assert ecfs("name", target, enc[:-1]).out == deep + "\n"
        assert ecfs("name", "--decode", target, enc[len(lower) + 1 : -1]).out == deep + "\n"
        assert ecfs("name", target, target).out == lower + "\n"
        assert ecfs("name", target, lower).out == target + "\n"
        link = ecfs("name", target, "link").out[:-1]
        assert os.path.islink(link), link
        # For exclude lists: what is not there yet has its name already, but not in a directory that is not there.
        assert ecfs("name", target, "missing").out.startswith(lower + "/")
        fails(ecfs("name", target, "missing/file"), 1, "missing/file", "No such file")
        fails(ecfs("name", "--decode", target, "nonsense"), 1, "nonsense")
        fails(ecfs("name", target, "/etc/passwd"), 1, "neither in")
        fails(ecfs("name", target), 2, "PATH")
        check(ecfs("umount", target), 0)


if __name__ == "__main__":
    need_fuse()
    main(globals())
