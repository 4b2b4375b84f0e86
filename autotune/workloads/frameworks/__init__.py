"""Trainers of frameworks, as their owners have them: commands in whose process the hook knows the framework.

What is known of each is a `Framework`. None is ever imported here.
"""
