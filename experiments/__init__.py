"""Commands that run vinejax: each module is one; `python -m experiments.NAME --help`."""
