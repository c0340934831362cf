"""Adds up the slip in memory and prints the receipt into a string."""

from tearoom import slip
from tearoom.money import half_even, half_up, show, show_percent, spread

TOTAL = 0  # of the last receipt


def make_receipt(text):
    """The receipt for one slip.  ValueError names the line that cannot be read."""
    global TOTAL
    TOTAL = 0
    slip.read_slip(text)
    if not slip.LINES:
        return "Nothing to pay.\n"

    out = ""
    subtotal = 0
    shared = 0
    own = {}
    for p in slip.PEOPLE:
        own[p] = 0
    for who, quantity, item, price, off, number in slip.LINES:
        gross = quantity * price
        less = half_up(gross * off, 1000)
        out += "%3d x %-20.20s%9s  %s\n" % (quantity, item, show(gross), who or "all")
        if off:
            out += "      %-20s%9s\n" % ("less " + show_percent(off), show(-less))
        subtotal += gross - less
        if who is None:
            shared += gross - less
        else:
            own[who] += gross - less

    service = 0
    out += "-" * 35 + "\n"
    out += "%-26s%9s\n" % ("Subtotal", show(subtotal))
    if slip.SERVICE is not None:
        service = half_even(subtotal * slip.SERVICE, 1000)
        out += "%-26s%9s\n" % ("Service " + show_percent(slip.SERVICE), show(service))
    TOTAL = subtotal + service
    out += "%-26s%9s\n" % ("Total", show(TOTAL))

    # shared dishes by heads, then the service charge by what each has eaten
    eaten = []
    parts = spread(shared, [1] * len(slip.PEOPLE))
    for i in range(len(slip.PEOPLE)):
        eaten.append(own[slip.PEOPLE[i]] + parts[i])
    charge = spread(service, eaten)
    pays = []
    for i in range(len(slip.PEOPLE)):
        pays.append((eaten[i] + charge[i], slip.PEOPLE[i]))
    pays.sort(key=lambda x: -x[0])

    out += "\n"
    for amount, who in pays:
        out += "%s pays %s\n" % (who, show(amount))
    return out
