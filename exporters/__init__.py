"""Everything that hands derived numbers to other systems."""
