"""The trainers of frameworks as workloads: commands in whose process the hook knows the framework.

A `Framework` says what the tuner knows of each. No module here imports a framework.
"""
