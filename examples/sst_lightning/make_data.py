"""Writes maps of monthly sea-surface temperature as ERA5's are laid out: `python make_data.py`.

They are drawn, not observed: a seasonal cycle, an oscillation of the tropical Pacific with a period of
about four years, its delayed echo in the north, and anomalies that drift west, fade and are renewed monthly.
"""

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

YEARS = range(1940, 2024)
LATITUDE = np.arange(37.5, -40, -5)  # of a cell's centre, in degrees; ERA5 begins in the north
LONGITUDE = np.arange(122.5, 280, 5)
SHAPE = (len(LATITUDE), len(LONGITUDE))
FADE = 0.85  # what is left of an anomaly after a month
RENEWAL_K = 0.4  # standard deviation of what is new each month
ECHO_MONTHS = 4


def seasons(months: int) -> np.ndarray:
    """Mean and seasonal cycle in kelvin, (months, latitude, longitude); the north is warmest in August."""
    mean = 301 - 0.0095 * LATITUDE**2
    swing = 6 * np.sin(np.radians(LATITUDE))
    phase = np.cos(2 * np.pi * (np.arange(months) % 12 - 7) / 12)
    return np.broadcast_to((mean + swing * phase[:, None])[..., None], (months, *SHAPE))


def oscillation(months: int, rng: np.random.Generator) -> np.ndarray:
    """An index of variance one: a damped oscillation with a period of 46 months, kept up by noise."""
    damping, turn = 0.97, 2 * np.pi / 46
    index = np.zeros(months)
    for month in range(2, months):
        before, earlier = index[month - 1], index[month - 2]
        index[month] = 2 * damping * np.cos(turn) * before - damping**2 * earlier + rng.normal()
    return index / index.std()


def patterns() -> tuple[np.ndarray, np.ndarray]:
    """Where the oscillation warms by how many kelvin at once, and where later."""
    north, east = LATITUDE[:, None], LONGITUDE[None]
    at_once = 1.2 * np.exp(-((north / 9) ** 2)) / (1 + np.exp((185 - east) / 12))
    later = -0.7 * np.exp(-(((north - 30) / 9) ** 2) - ((east - 190) / 25) ** 2)
    return at_once, later


def drifting(months: int, rng: np.random.Generator) -> np.ndarray:
    """Anomalies in kelvin that move west by one cell a month, fade, and are renewed."""
    field = np.zeros((months, *SHAPE))
    for month in range(1, months):
        moved = np.pad(field[month - 1], ((0, 0), (0, 1)))[:, 1:]
        field[month] = FADE * moved + RENEWAL_K * smooth_noise(rng)
    return field


def smooth_noise(rng: np.random.Generator) -> np.ndarray:
    """Noise of variance one, correlated over a few cells."""
    wide = rng.normal(size=(SHAPE[0] + 8, SHAPE[1] + 8))
    weights = np.array([1, 4, 6, 4, 1]) / np.sqrt(70)  # squares that add to one
    for axis in (0, 1):
        wide = np.apply_along_axis(np.convolve, axis, wide, weights, mode="same")
    return wide[4:-4, 4:-4]


def is_land() -> np.ndarray:
    """Where there is no sea: about Australia and the Americas."""
    north, east = LATITUDE[:, None], LONGITUDE[None]
    australia = ((north + 25) / 13) ** 2 + ((east - 134) / 16) ** 2 < 1
    americas = east > 243 + np.where(north > 0, 37 - north, 37) * 1.05
    return australia | americas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("data/sst.nc"), help="left as it is where it is there"
    )
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    if args.out.exists():
        return
    rng = np.random.default_rng(args.seed)
    months = 12 * len(YEARS)
    index = oscillation(months + ECHO_MONTHS, rng)
    at_once, later = patterns()
    sst = seasons(months) + drifting(months, rng)
    sst = sst + at_once * index[ECHO_MONTHS:, None, None] + later * index[:-ECHO_MONTHS, None, None]
    months_of = (np.datetime64(str(YEARS[0]), "M") + np.arange(months)).astype("datetime64[ns]")
    maps = xr.DataArray(
        np.where(is_land(), np.nan, sst).astype(np.float32),
        {"valid_time": months_of, "latitude": LATITUDE, "longitude": LONGITUDE},
        dims=("valid_time", "latitude", "longitude"),
        name="sst",
        attrs={"units": "K", "long_name": "Sea surface temperature"},
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    maps.to_netcdf(args.out, engine="h5netcdf")


if __name__ == "__main__":
    main()
