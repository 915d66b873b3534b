"""Search over what to run: space, memory, closed form, simulation, front, and the sentence in which people ask."""
