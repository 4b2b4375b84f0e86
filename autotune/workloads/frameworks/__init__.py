"""The trainers of frameworks as workloads: commands in whose process the hook knows the framework.

A `Framework` says what the tuner knows of each; `known` lists them. No module here imports a framework: what
runs in the script's process is in `inside/site`.
"""
