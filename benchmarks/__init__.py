"""Scripts that measure vinejax; each prints a table, or one JSON line with --json."""
