"""Finds the field's known mistakes in rules and boards: file and line, what is wrong, and how to mend it."""
