"""The command line: one file a group of commands. Each parses, makes one call, prints."""
