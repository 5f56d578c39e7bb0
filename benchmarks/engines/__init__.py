"""Workers: one engine each, in a process of its own (see benchmarks.turns)."""
