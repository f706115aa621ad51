"""Reading a results directory: summaries, comparisons, gates and their renderings."""
