"""Money is kept in whole pence.  Percentages are kept in tenths of a percent."""

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal


def show(pence):
    """275 -> '2.75'"""
    s = str(abs(pence))
    while len(s) < 3:
        s = "0" + s
    s = s[:-2] + "." + s[-2:]
    if pence < 0:
        s = "-" + s
    return s


def show_percent(tenths):
    """125 -> '12.5%', 100 -> '10%'"""
    s = str(tenths // 10)
    if tenths % 10:
        s = s + "." + str(tenths % 10)
    return s + "%"


def half_up(top, bottom):
    """top / bottom to a whole number, halves up.  For discounts: half a penny off is a penny off."""
    return int((Decimal(top) / Decimal(bottom)).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def half_even(top, bottom):
    """top / bottom to a whole number, halves to the even one.  For the service charge, as the accountant wants it."""
    return int((Decimal(top) / Decimal(bottom)).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def spread(amount, weights):
    """Deal out an amount in proportion to the weights, to the penny.

    Pennies left over go to the largest remainders, and of equal ones to the
    earlier.  If all weights are 0 everybody gets 0.
    """
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    parts = []
    queue = []
    for i in range(len(weights)):
        parts.append(amount * weights[i] // whole)
        queue.append((-(amount * weights[i] % whole), i))
    queue.sort()
    left = amount - sum(parts)
    for k in range(left):
        parts[queue[k][1]] += 1
    return parts
