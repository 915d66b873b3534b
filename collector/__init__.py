"""Everything that brings data in and keeps it."""
