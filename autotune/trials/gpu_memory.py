"""Evidence in a GPU's memory figures for why a trial failed on it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuMemory:
    """A GPU's memory just after a trial has failed, as seen by its process."""

    total_bytes: int
    free_bytes: int
    reserved_bytes: int  # held by the process's allocator
    allowed_bytes: int  # the allocator's cap
    elsewhere_before_bytes: int  # neither free nor reserved when the trial began: others, CUDA context
    refusals: int  # allocations that were refused, whether or not that raised an error

    @property
    def is_short(self) -> bool:
        """True if there is a sign that memory was short, whatever the error says."""
        is_full = self.reserved_bytes > 0.95 * self.allowed_bytes
        # With less than 5% of a GPU free, libraries ask for more at once, and fail with obscure errors.
        return self.refusals > 0 or self.free_bytes < 0.05 * self.total_bytes or is_full

    def is_taken_by_others(self, asked_bytes: int) -> bool:
        """Returns True if an allocation of `asked_bytes` failed because others took the trial's memory."""
        elsewhere_bytes = self.total_bytes - self.free_bytes - self.reserved_bytes
        grown_bytes = elsewhere_bytes - self.elsewhere_before_bytes
        is_within = self.reserved_bytes + asked_bytes <= self.allowed_bytes
        # A process's own kernels and handles, loaded while it trains, take less.
        return is_within and grown_bytes > 512 * 2**20
