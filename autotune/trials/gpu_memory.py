"""What a GPU's memory says about why a trial failed on it. Pure: figures in, evidence out."""

from dataclasses import dataclass

# Of a GPU: libraries ask for more than that at once, and say in odd words if they get none.
_SHORT_SHARE = 0.05
_FULL_SHARE = 0.95  # of what the allocator may take
_OWN_GROWTH_BYTES = 512 * 2**20  # kernels and handles that a process loads while it trains


@dataclass(frozen=True)
class GpuMemory:
    """A GPU's memory just after a trial has failed, in bytes, as its process sees it.

    `reserved_bytes` are held by the process's allocator, which may take `allowed_bytes`. What is neither
    free nor the allocator's is elsewhere: others and the CUDA context. It was `elsewhere_before_bytes` when
    the trial began. `refusals` counts how often the allocator was refused memory, with or without an error.
    """

    total_bytes: int
    free_bytes: int
    reserved_bytes: int
    allowed_bytes: int
    elsewhere_before_bytes: int
    refusals: int

    @property
    def is_short(self) -> bool:
        """Whether there is a sign that memory was wanting, whatever the error says."""
        return (
            self.refusals > 0
            or self.free_bytes < _SHORT_SHARE * self.total_bytes
            or self.reserved_bytes > _FULL_SHARE * self.allowed_bytes
        )

    def is_taken_by_others(self, asked_bytes: int) -> bool:
        """Whether an allocation of `asked_bytes` has failed because others had taken what was the trial's.

        It was within what the trial may take, and since it began more has gone elsewhere than a process adds
        to its own context.
        """
        elsewhere_bytes = self.total_bytes - self.free_bytes - self.reserved_bytes
        grown_bytes = elsewhere_bytes - self.elsewhere_before_bytes
        is_within = self.reserved_bytes + asked_bytes <= self.allowed_bytes
        return is_within and grown_bytes > _OWN_GROWTH_BYTES
