"""What the settings of a winner mean, by what they are called. Pure."""

from collections.abc import Collection, Mapping

from autotune.core.common_names import CLIP_NORM, CLIP_VALUE, NAMES, sure

OFF = (False, None, "off", "none", "no")
_LIGHTNINGS_CLIPPING, _BY_VALUE = "gradient_clip_val", "gradient_clip_algorithm"


def meant(name: str, values: Mapping[str, object]) -> str:
    """What the setting `name` means, as far as that is known by what it is called; else its own name.

    `values` are those of all settings by their names: one of them says how Lightning clips.
    """
    if ends_with(name, [_LIGHTNINGS_CLIPPING]):
        clips_values = any(v == "value" for key, v in values.items() if ends_with(key, [_BY_VALUE]))
        return CLIP_VALUE if clips_values else CLIP_NORM
    return next((what for what in NAMES if ends_with(name, sure(what))), name)


def ends_with(path: str, names: Collection[str]) -> bool:
    """Whether `path` is one of the `names`, or is below something and ends so."""
    return any(path == name or path.endswith(f".{name}") for name in names)
