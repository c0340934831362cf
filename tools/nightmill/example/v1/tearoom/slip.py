"""Reads an order slip into the lists below.  Only one slip is in memory at a time.

    # a comment
    Anna: 2 x Scone @ 2.75
    Ben: Tea @ 1.80 -10%
    all: Cake @ 12.50
    service 12.5%
"""

PEOPLE = []  # guests in the order they turn up, spelled as they turn up
LINES = []  # lists: who, quantity, item, price, discount, line number; who is None when all share
SERVICE = None  # tenths of a percent, or None
SERVICE_LINE = 0
NUMBER = 0  # of the line being read


def read_slip(text):
    global SERVICE, SERVICE_LINE, NUMBER
    del PEOPLE[:]
    del LINES[:]
    SERVICE = None
    SERVICE_LINE = 0
    NUMBER = 0
    for line in text.split("\n"):
        NUMBER += 1
        line = line.strip()
        if line == "" or line[0] == "#":
            continue
        if ":" in line:
            read_order(line)
        elif line.split()[0].lower() == "service":
            read_service(line)
        else:
            fail("cannot read '%s'" % line)
    for l in LINES:
        if l[0] is None and not PEOPLE:
            NUMBER = l[5]
            fail("nobody to share '%s' with" % l[2])


def read_order(line):
    i = line.index(":")
    who = " ".join(line[:i].split())
    rest = line[i + 1 :].strip()
    if who == "":
        fail("no name before ':'")
    if "@" not in rest:
        fail("no '@' and price")
    i = rest.rindex("@")
    item = rest[:i].strip()
    tail = rest[i + 1 :].split()

    quantity = 1
    if " x " in item:
        left, right = item.split(" x ", 1)
        if digits(left.strip()):
            quantity = left.strip()
            if len(quantity) > 3 or int(quantity) == 0:
                fail("quantity must be 1 to 999: '%s'" % quantity)
            quantity = int(quantity)
            item = right.strip()
    if item == "":
        fail("no item before '@'")

    if len(tail) == 0:
        fail("no price after '@'")
    price = pence(tail[0])
    off = 0
    if len(tail) > 1:
        if len(tail) > 2 or tail[1][0] != "-":
            fail("too much after the price: '%s'" % " ".join(tail[1:]))
        off = tenths(tail[1][1:])

    who = seat(who)
    for l in LINES:
        if l[0] == who and l[2] == item and l[3] == price and l[4] == off:
            l[1] += quantity
            return
    LINES.append([who, quantity, item, price, off, NUMBER])


def seat(who):
    """The guest's name as first spelled, None for 'all'."""
    if who.lower() == "all":
        return None
    for p in PEOPLE:
        if p.lower() == who.lower():
            return p
    PEOPLE.append(who)
    return who


def read_service(line):
    global SERVICE, SERVICE_LINE
    rest = line.split()[1:]
    if SERVICE is not None:
        fail("service given twice, first on line %d" % SERVICE_LINE)
    SERVICE = tenths(" ".join(rest))
    SERVICE_LINE = NUMBER


def pence(s):
    """'2.75', '2.5', '2' and a pound sign before it"""
    t = s
    if t[:1] == "£":
        t = t[1:]
    p = "00"
    if "." in t:
        i = t.index(".")
        t, p = t[:i], t[i + 1 :]
        if len(p) == 1:
            p = p + "0"
    if not digits(t) or not digits(p) or len(p) != 2 or len(t) > 6:
        fail("not a price: '%s'" % s)
    return int(t + p)


def tenths(s):
    """'12.5%' -> 125"""
    t = s
    d = "0"
    if t[-1:] == "%":
        t = t[:-1]
        if "." in t:
            i = t.index(".")
            t, d = t[:i], t[i + 1 :]
        if digits(t) and digits(d) and len(d) == 1 and len(t) <= 3:
            n = int(t + d)
            if n <= 1000:
                return n
    fail("not a percentage: '%s'" % s)


def digits(s):
    for c in s:
        if c not in "0123456789":
            return False
    return s != ""


def fail(message):
    raise ValueError("line %d: %s" % (NUMBER, message))
