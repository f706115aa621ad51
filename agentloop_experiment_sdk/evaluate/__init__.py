"""Local evaluators: a task and its output in, metric results out."""
