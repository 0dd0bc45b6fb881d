# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line."""

import argparse
import os
import resource
import signal
import sys

from . import errors
from . import lower
from . import passphrase
from . import report
from .errors import Failure, why
from .extract import Extraction, prepare
from .tree import Walker
from .volume import VolumeFile, recovery_key

NAME = "ecfs-rescue"
DESCRIPTION = """Reads a volume of ecfs without ecfs, damaged ones, too. Never writes into LOWER.

  list      the tree
  verify    reads everything, and tells each damage
  extract   writes the tree into OUT, which must be empty or not exist; what is damaged is left out, and told"""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(errors.USAGE, "command line", message, f"{NAME} --help")


def parse(arguments):
    parser = Parser(prog=NAME, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--stdin", action="store_true", help="the passphrase or recovery key is the one line on standard input")
    parser.add_argument("--passfile", metavar="FILE", help="the passphrase or recovery key is the content of FILE")
    parser.add_argument("--json", action="store_true", help="list and verify: one JSON object a line")
    parser.add_argument("command", choices=("list", "verify", "extract"))
    parser.add_argument("lower", metavar="LOWER")
    parser.add_argument("out", metavar="OUT", nargs="?")
    options = parser.parse_intermixed_args(arguments)
    if options.stdin and options.passfile is not None:
        parser.error("--stdin and --passfile exclude each other")
    if (options.out is not None) != (options.command == "extract"):
        parser.error("extract needs OUT" if options.command == "extract" else f"{options.command} takes no OUT")
    if options.json and options.command == "extract":
        parser.error("extract has no --json")
    return options


def unlock(volume_file, options):
    reason = ""
    for secret in passphrase.tries(options, lambda: reason):
        volume = volume_file.unlock(secret)
        if volume:
            return volume
        _, mistyped = recovery_key(secret)
        reason = f"wrong recovery key: group {mistyped} has a typing error" if mistyped else "wrong passphrase"
    raise Failure(errors.PASSPHRASE, options.lower, reason)


def run(options):
    try:
        root_fd = lower.open_root(options.lower)
    except OSError as e:
        raise Failure(errors.LOWER, options.lower, why(e)) from None
    # Two descriptors for each directory of a path.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.umask(0o077)
    volume_file = VolumeFile(root_fd)
    out_fd = prepare(options.out, root_fd) if options.command == "extract" else None
    volume = unlock(volume_file, options)
    progress = report.Progress()
    # The damage is what verify and extract are asked for; a list is no place for it.
    findings = report.Findings(progress, sys.stderr if options.command == "list" else sys.stdout, options.json)
    walker = Walker(root_fd, volume, findings)
    if options.command == "list":
        report.list_tree(walker, options.json)
    elif options.command == "verify":
        report.verify_tree(walker, progress, findings, options.json)
    else:
        Extraction(walker, out_fd, findings, progress).run()
    return errors.DAMAGE if findings.count else errors.OK


def main():
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # by way of what restores the terminal
    try:
        code = run(parse(sys.argv[1:]))
        sys.stdout.flush()
        return code
    except Failure as e:
        sys.stdout.flush()
        print(f"{NAME}: error: {report.shown(e.what)}: {report.shown(e.why)}", file=sys.stderr)
        if e.hint:
            print(f"{NAME}: hint: {e.hint}", file=sys.stderr)
        return e.code
    except BrokenPipeError:
        # Nobody reads on; the interpreter must not try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.DAMAGE
    except KeyboardInterrupt:
        return 130
