"""One store a module, all held by one contract test class."""
