"""The messages of an inbox."""

from dataclasses import dataclass

from autotune.inside.messages import Message


def all_of(inbox):
    """Returns all messages to it, in order; none may be sent afterwards."""
    inbox.finish()
    messages = []
    while message := inbox.get(0):
        messages.append(message)
    return messages


@dataclass(frozen=True)
class Heard:
    """A training's own output, and the hook's reports on it."""

    said: list
    messages: list[Message]
    errors: str

    @property
    def steps(self):
        return [message.step for message in self.messages if message.step is not None]

    @property
    def records(self):
        return [dict(message.record) for message in self.messages if message.record is not None]

    @property
    def taken(self):
        return sorted(name for message in self.messages for name in message.taken)

    @property
    def samples(self):
        return [step.samples for step in self.steps]
