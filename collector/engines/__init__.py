"""One inference engine a module: how its metrics map to canonical signals. Data, not behaviour."""
