"""Frameworks' trainers as workloads: commands in whose process a hook, in `inside/site`, applies settings."""
