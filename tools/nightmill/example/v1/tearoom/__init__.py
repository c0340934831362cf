"""The till of a tea room: from an order slip to a receipt and what each guest pays."""
