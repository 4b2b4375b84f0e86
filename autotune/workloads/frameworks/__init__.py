"""Trainers of frameworks as workloads: commands in whose process a hook applies the settings.

A `Framework` describes each; `known` lists them. No module here imports a framework: the code that runs in
the script's process is in `inside/site`.
"""
