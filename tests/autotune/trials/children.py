"""Helpers that listen to the children of trials, and find their processes."""

import os

import psutil


def listen(child):
    """Returns the records that a child yields up to its end."""
    events = []
    while child.verdict is None:
        events += child.poll(1.0)
    return events + child.poll(0.0)


def session(pid):
    """Returns the live processes of a child's session."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getsid(process.pid) == pid and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found
