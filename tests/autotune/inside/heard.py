"""What an inbox has heard."""

from dataclasses import dataclass

from autotune.inside.messages import Message


def all_of(inbox):
    """All that has been said to it, in order; nobody says anything more."""
    inbox.finish()
    messages = []
    while message := inbox.get(0):
        messages.append(message)
    return messages


@dataclass(frozen=True)
class Heard:
    """What a training has said of itself, and what the hook has told of it."""

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
