"""The same programs as functions that report by themselves: `contract_pushed.trains` is one."""

import contract_programs

import autotune


def tell(records):
    """Reports `records`, until it is to stop."""
    for record in records:
        autotune.report(**record)
        if autotune.should_stop():
            records.close()


def __getattr__(name):
    program = getattr(contract_programs, name)
    return lambda settings, workdir: tell(program(settings, workdir))
