"""The ledger of experiments: what was asked, what was measured, what it says, and whether we had predicted it. Pure."""
