"""Choices as tables: quantisation by card, engine by load, and what each maker's cards are called by an orchestrator."""
