"""One call to a model, from the template to a parsed reply."""
