"""python -m tearoom SLIP... : a receipt for each slip, and the takings when there are several."""

import sys

from tearoom import receipt
from tearoom.money import show


def main(argv):
    if not argv:
        sys.stderr.write("usage: tearoom SLIP...\n")
        return 2
    status = 0
    takings = 0
    for path in argv:
        try:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            answer = receipt.make_receipt(text)
        except OSError as e:
            sys.stderr.write("tearoom: %s: %s\n" % (path, e.strerror))
            status = 1
            continue
        except ValueError as e:
            sys.stderr.write("tearoom: %s: %s\n" % (path, e))
            status = 1
            continue
        takings += receipt.TOTAL
        if len(argv) > 1:
            sys.stdout.write("== %s ==\n" % path)
        sys.stdout.write(answer)
        if len(argv) > 1:
            sys.stdout.write("\n")
    if len(argv) > 1:
        sys.stdout.write("Takings %s\n" % show(takings))
    return status
