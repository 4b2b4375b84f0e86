"""The messages of an inbox."""

from dataclasses import dataclass

from autotune.inside.messages import Message, Reported, Step, Taken


def all_of(inbox):
    """Returns all messages to `inbox`, in order; none may be sent afterwards."""
    inbox.finish()
    messages = []
    while message := inbox.get(0):
        messages.append(message)
    return messages


def contents(messages, kind):
    """Returns the contents of the messages of this kind."""
    return [message.content for message in messages if isinstance(message.content, kind)]


@dataclass(frozen=True)
class Heard:
    """A training's own output, and the hook's reports on it."""

    said: list
    messages: list[Message]
    errors: str

    @property
    def steps(self):
        return contents(self.messages, Step)

    @property
    def records(self):
        return [dict(reported.record) for reported in contents(self.messages, Reported)]

    @property
    def taken(self):
        return sorted(name for taken in contents(self.messages, Taken) for name in taken.names)

    @property
    def kinds(self):
        """The kinds of the messages, in order, without replaced arguments."""
        return [type(message.content) for message in self.messages if not isinstance(message.content, Taken)]

    @property
    def samples(self):
        return [step.samples for step in self.steps]
