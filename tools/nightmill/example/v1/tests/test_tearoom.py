import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from tearoom.cli import main
from tearoom.money import half_even, half_up, show, spread
from tearoom.receipt import make_receipt

SATURDAY = """\
# Saturday, table 4
Anna: 2 x Scone @ 2.75
Ben: Tea @ 1.80 -10%
all: Cake @ 12.50
anna: Scone @ 2.75
service 12.5%
"""


class MoneyTest(unittest.TestCase):
    def test_show(self):
        self.assertEqual([show(0), show(5), show(-18), show(1250)], ["0.00", "0.05", "-0.18", "12.50"])

    def test_halves(self):
        self.assertEqual([half_up(5, 10), half_up(15, 10), half_up(25, 10)], [1, 2, 3])
        self.assertEqual([half_even(5, 10), half_even(15, 10), half_even(25, 10)], [0, 2, 2])

    def test_spread(self):
        self.assertEqual(spread(100, [1, 1, 1]), [34, 33, 33])
        self.assertEqual(spread(0, [0, 0]), [0, 0])


class ReceiptTest(unittest.TestCase):
    def test_saturday(self):
        self.assertEqual(
            make_receipt(SATURDAY).splitlines(),
            [
                "  3 x Scone                    8.25  Anna",
                "  1 x Tea                      1.80  Ben",
                "      less 10%                -0.18",
                "  1 x Cake                    12.50  all",
                "-----------------------------------",
                "Subtotal                      22.37",
                "Service 12.5%                  2.80",
                "Total                         25.17",
                "",
                "Anna pays 16.31",
                "Ben pays 8.86",
            ],
        )

    def test_nothing(self):
        self.assertEqual(make_receipt("# closed\n"), "Nothing to pay.\n")

    def test_one_slip_after_the_other(self):
        first = make_receipt(SATURDAY)
        make_receipt("Cleo: Tea @ 1.80")
        self.assertEqual(make_receipt(SATURDAY), first)

    def test_bad_price(self):
        with self.assertRaises(ValueError) as caught:
            make_receipt("Anna: Tea @ 1.80\n\nBen: Tea @ 1.8o\n")
        self.assertEqual(str(caught.exception), "line 3: not a price: '1.8o'")


class CliTest(unittest.TestCase):
    def test_a_bad_slip_does_not_stop_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            good = os.path.join(folder, "good")
            with open(good, "w", encoding="utf-8") as f:
                f.write("Anna: Tea @ 1.80\n")
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main([folder + "/none", good])
        self.assertEqual(status, 1)
        self.assertIn("No such file", err.getvalue())
        self.assertTrue(out.getvalue().endswith("Takings 1.80\n"))


if __name__ == "__main__":
    unittest.main()
