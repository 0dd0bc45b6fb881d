#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page that ecfs-bench --html writes, in a real browser: charts for every workload, no script error, a table that sorts."""

import json
import os
import re
import shutil

from common import BUILD, World, check, main, need_fuse, run, skip

BENCH = str(BUILD / "tools" / "bench" / "ecfs-bench")
# Appended to the page: it sorts, and leaves what it saw in the document.
PROBE = """<script>{
const result = document.createElement('pre');
result.id = 'probe';
const column = n => [...document.querySelectorAll('#figures tbody tr')].map(r => r.cells[n].dataset.v);
const heads = document.querySelectorAll('#figures th');
heads[3].firstChild.click();
const up = column(3);
heads[3].firstChild.click();
const down = column(3);
const seen = getComputedStyle(document.querySelector('svg rect.f1')).fill;
result.textContent = JSON.stringify({up, down, seen, sort: heads[3].getAttribute('aria-sort'), wide: document.documentElement.scrollWidth, width: innerWidth});
document.body.append(result);
}</script>"""


def browse(w, page, *options):
    return run([shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + w.path("profile"),
                "--enable-logging=stderr", "--virtual-time-budget=2000", *options, "file://" + page], cwd=w.dir, timeout=200, env=dict(os.environ, HOME=w.dir))


def test_page():
    need_fuse()
    if not shutil.which("chromium"):
        skip("chromium is not installed")
    with World() as w:
        os.mkdir(w.path("work"))
        check(run([BENCH, "--dir", w.path("work"), "--warm", "--scale", "0.001", "--suite", "all", "--repeat", "2", "--html", "r.html", "--json", "r.json"],
                  cwd=w.dir, timeout=300), 0)
        html = open(w.path("r.html")).read()
        page = w.write("page.html", html + PROBE, 0o644)
        ran = check(browse(w, page, "--window-size=390,844", "--dump-dom"), 0)
        errors = [l for l in ran.err.splitlines() if "CONSOLE" in l]
        assert not errors, errors
        # Such an error would be seen.
        broken = w.write("broken.html", html + "<script>none.such()</script>", 0o644)
        assert any("CONSOLE" in l and "none" in l for l in browse(w, broken, "--dump-dom").err.splitlines())
        cards = re.findall(r'<figure data-workload="([^"]+)">(.*?)</figure>', ran.out, re.S)
        r = json.load(open(w.path("r.json")))
        measured = {one["workload"] for one in r["runs"] if one["samples"]}
        assert {name for name, _ in cards} == measured and measured, (cards, measured)
        for name, card in cards:
            assert card.count("<svg") == 2 and card.count("<rect") > 2 and "<circle" in card, (name, card)
        probe = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', ran.out, re.S).group(1))
        up = [float(v) for v in probe["up"]]
        assert len(up) == 2 * len(r["summary"]) and up == sorted(up), up
        assert [float(v) for v in probe["down"]] == up[::-1] and probe["sort"] == "descending", probe
        assert probe["seen"].startswith("rgb(") and probe["seen"] != "rgb(0, 0, 0)", probe
        # Nothing sticks out of a telephone's screen.
        assert probe["wide"] <= probe["width"], probe


if __name__ == "__main__":
    main(globals())
