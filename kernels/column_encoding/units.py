"""Units of numbers in texts, and conversions between units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

CURRENCIES = (
    r"[$€£¥₹₩₽₺₴₫฿₪₱]|(?:US|AU|CA|NZ|HK)\$|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK"
    r"|NOK|DKK|PLN|BRL|MXN|Rs\.?|R\$|kr"
)
"""Currencies, which are never converted."""

COUNT = "count"
"""Quantity of numbers without a unit, or in billions (B)."""

FRACTION = "fraction"

HOURS_AND_MINUTES = "h:min"

MINUTES_AND_SECONDS = "min-s"


class Conversion(NamedTuple):
    """Linear conversion to another unit: ``value * factor + offset``."""

    factor: float
    offset: float = 0.0


SI_PREFIXES = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}

PREFIXED_UNITS = {
    "frequency": "Hz",
    "power": "W",
    "energy": "Wh",
    "heat": "J",
    "voltage": "V",
    "current": "A",
    "pressure": "Pa",
    "resistance": "Ω",
}

CONVERSIONS: dict[str, dict[str, float | Conversion]] = {
    COUNT: {"": 1.0, "B": 1e9},
    "length": {
        "nm": 1e-9, "µm": 1e-6, "mm": 1e-3, "cm": 1e-2, "dm": 0.1, "m": 1.0, "km": 1e3,
        "in": 0.0254, '"': 0.0254, "ft": 0.3048, "'": 0.3048, "yd": 0.9144, "mi": 1609.344, "nmi": 1852.0,
    },
    "mass": {
        "ng": 1e-9, "µg": 1e-6, "mcg": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6,
        "oz": 28.349523125, "lb": 453.59237, "st": 6350.29318,
    },
    "volume": {
        "µL": 1e-6, "mL": 1e-3, "cL": 1e-2, "dL": 0.1, "L": 1.0, "hL": 100.0, "m³": 1e3, "cm³": 1e-3,
        "gal": 3.785411784,
    },
    "area": {"mm²": 1e-6, "cm²": 1e-4, "m²": 1.0, "km²": 1e6, "ha": 1e4, "acre": 4046.8564224, "sqft": 0.09290304},
    "time": {
        "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0,
        "week": 604_800.0, "month": 2_629_746.0, "y": 31_556_952.0,
        HOURS_AND_MINUTES: 1.0,
    },
    "time in minutes and seconds": {MINUTES_AND_SECONDS: 1.0, "s": 1.0, HOURS_AND_MINUTES: 1 / 60},
    "information": {
        "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
        "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    },
    "data rate": {"bit/s": 1.0, "Kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9},
    "speed": {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "kn": 1852 / 3600},
    "barometric pressure": {"Pa": 1.0, "hPa": 100.0, "mbar": 100.0, "bar": 1e5, "psi": 6894.757293168, "mmHg": 133.322},
    "energy of food": {"J": 1.0, "kJ": 1e3, "cal": 4.184, "kcal": 4184.0},
    "mass concentration": {
        "ng/mL": 1e-3, "µg/L": 1e-3, "µg/mL": 1.0, "mg/L": 1.0, "mg/dL": 10.0, "g/L": 1e3, "g/dL": 1e4,
    },
    "molar concentration": {
        "nmol/L": 1e-9, "µmol/L": 1e-6, "mmol/L": 1e-3, "mol/L": 1.0, "nM": 1e-9, "µM": 1e-6, "mM": 1e-3, "M": 1.0,
    },
    "share": {FRACTION: 1.0, "%": 1e-2, "‰": 1e-3, "ppm": 1e-6, "ppb": 1e-9},
    "temperature": {"°C": 1.0, "°F": Conversion(5 / 9, -160 / 9), "K": Conversion(1.0, -273.15)},
    "angle": {"°": 1.0, "rad": 57.29577951308232},
    "latitude": {"N": 1.0, "S": -1.0, "°N": 1.0, "°S": -1.0, "°": 1.0},
    "longitude": {"E": 1.0, "W": -1.0, "°E": 1.0, "°W": -1.0, "°": 1.0},
    "longitude, O is east": {"O": 1.0, "W": -1.0, "°O": 1.0, "°W": -1.0, "°": 1.0},
    "longitude, O is west": {"E": 1.0, "O": -1.0, "°E": 1.0, "°O": -1.0},
    "euro": {"€": 1.0, "EUR": 1.0},
    "pound sterling": {"£": 1.0, "GBP": 1.0},
    **{
        quantity: {prefix + unit: factor for prefix, factor in SI_PREFIXES.items()}
        for quantity, unit in PREFIXED_UNITS.items()
    },
}  # fmt: skip
"""Conversions to the base unit, by quantity; months are Gregorian means, gallons US gallons."""

SPELLINGS = {
    "µm": "um μm micrometer micrometre micron", "mm": "millimeter millimetre", "cm": "centimeter centimetre",
    "m": "meter metre mtr", "km": "kilometer kilometre kms", "in": "inch inche ″ ”", "ft": "foot feet ′ ’",
    "yd": "yard yds", "mi": "mile",
    "µg": "ug μg", "mg": "milligram mgs", "g": "gram gm gms gr", "kg": "kilogram kilo kgs kilogramme", "t": "ton tonne",
    "oz": "ounce", "lb": "lbs pound", "st": "stone",
    "µL": "ul µl μl μL", "mL": "ml milliliter millilitre", "cL": "cl", "dL": "dl", "L": "l liter litre ltr",
    "m³": "m3 m^3", "cm³": "cm3 cm^3 cc", "gal": "gallon",
    "m²": "m2 m^2 sqm", "cm²": "cm2 cm^2", "mm²": "mm2 mm^2", "km²": "km2 km^2", "sqft": "ft² ft2 ft^2",
    "ha": "hectare", "acre": "ac",
    "µs": "us μs microsecond", "ms": "msec millisecond", "s": "sec second secs", "min": "minute mins mn",
    "h": "hr hrs hour std", "d": "day", "week": "wk wks w", "month": "mo mos mth", "y": "yr yrs year",
    "B": "byte", "KB": "kB kb", "MB": "mb", "GB": "gb", "TB": "tb", "KiB": "kib", "MiB": "mib", "GiB": "gib",
    "bit/s": "bps", "kbps": "Kbps", "Mbps": "mbps", "Gbps": "gbps",
    "km/h": "kmh kph kmph", "mph": "mi/h", "kn": "knot kt",
    "mmHg": "mmhg", "hPa": "hpa", "kWh": "kwh", "Wh": "wh", "kW": "kw", "Hz": "hz", "GHz": "ghz", "MHz": "mhz",
    "µg/L": "ug/L μg/L µg/l ug/l", "µg/mL": "ug/mL μg/mL µg/ml ug/ml", "ng/mL": "ng/ml", "mg/dL": "mg/dl",
    "g/dL": "g/dl", "mg/L": "mg/l", "g/L": "g/l", "mmol/L": "mmol/l", "nmol/L": "nmol/l",
    "µmol/L": "umol/L μmol/L µmol/l umol/l",
    "°C": "ºC degC", "°F": "ºF degF", "°": "deg degree º",
}  # fmt: skip

CANONICAL = {
    spelling: unit
    for unit, spellings in SPELLINGS.items()
    for spelling in spellings.split()
}

KNOWN_UNITS = frozenset(unit for units in CONVERSIONS.values() for unit in units)


def canonical_unit(unit: str) -> str:
    """Return the unit as spelled in `CONVERSIONS`, or unchanged if unknown."""
    for spelling in _spellings(unit):
        if spelling in KNOWN_UNITS:
            return spelling
    return unit


def is_unit(text: str) -> bool:
    return (
        canonical_unit(text) in KNOWN_UNITS
        or re.fullmatch(CURRENCIES, text) is not None
    )


def _spellings(unit: str) -> Iterator[str]:
    bare = unit.replace(" ", "").rstrip(".")
    for word in (bare, bare.lower(), bare.lower().removesuffix("s")):
        yield word
        yield CANONICAL.get(word, word)


@lru_cache(maxsize=1024)
def conversion_between(unit: str, target_unit: str) -> Conversion | None:
    """Return the conversion between two units; None if no quantity has both."""
    if unit == target_unit:
        return Conversion(1.0)
    source = canonical_unit(unit)
    target = canonical_unit(target_unit)
    if source == target:
        return Conversion(1.0)
    for units_of_quantity in CONVERSIONS.values():
        if source in units_of_quantity and target in units_of_quantity:
            return _composed(units_of_quantity[source], units_of_quantity[target])
    return None


def _composed(source: float | Conversion, target: float | Conversion) -> Conversion:
    to_base = source if isinstance(source, Conversion) else Conversion(source)
    to_target = target if isinstance(target, Conversion) else Conversion(target)
    return Conversion(
        to_base.factor / to_target.factor,
        (to_base.offset - to_target.offset) / to_target.factor,
    )


CLOCK_DURATION = re.compile(
    r"(?:(?P<days>[+-]?\d+) ?d(?:ays?)?,? ?\+?)?(?P<sign>[+-])?"
    r"(?P<hours>\d{1,6})[:h](?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:[.,]\d+)?))?",
    re.ASCII | re.IGNORECASE,
)
"""A duration such as 35:23:06 or -1 days +23:00:00."""

ISO_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
"""A duration of ISO 8601, such as P1DT3H4M5S."""


TWO_PARTS = re.compile(r"[+-]?\d{1,6}:[0-5]\d", re.ASCII)


def seconds_in(text: str) -> float | None:
    """Parse a duration in seconds; None if the text is not a duration."""
    match = CLOCK_DURATION.fullmatch(text) or ISO_DURATION.fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    if not any(parts[name] for name in ("days", "hours", "minutes", "seconds")):
        return None
    days = int(parts["days"] or 0)
    seconds = float((parts["seconds"] or "0").replace(",", "."))
    total = 86_400.0 * days + (
        3600.0 * int(parts["hours"] or 0) + 60.0 * int(parts["minutes"] or 0) + seconds
    )
    if parts["sign"] == "-":
        return -total
    return total


DEGREES = re.compile(
    r"(?P<sign>[+-])?(?P<degrees>\d{1,3}) ?[°º] ?(?P<minutes>[0-5]?\d(?:[.,]\d+)?) ?['′’]"
    r"(?: ?(?P<seconds>[0-5]?\d(?:[.,]\d+)?) ?(?:[\"″”]|''))? ?(?P<direction>[NSEWO])?",
    re.ASCII,
)
"""An angle in degrees, minutes and seconds, such as 48°56'33" N."""

DIRECTION_FIRST = re.compile(
    r"(?P<direction>[NSEWO]) ?(?P<degrees>\d{1,3}(?:\.\d+)?) ?[°º]|(?P<letter>[NSEWO]) (?P<decimals>\d{1,3}\.\d{3,})"
)
"""An angle after its direction, such as N 48.9426; E11.9 is a code."""


def degrees_in(text: str) -> tuple[float, str] | None:
    """Parse an angle as degrees and unit; None if the text is not an angle."""
    match = DIRECTION_FIRST.fullmatch(text)
    if match:
        return float(
            match["degrees"] or match["decimals"]
        ), f"°{match['direction'] or match['letter']}"
    match = DEGREES.fullmatch(text)
    if match is None:
        return None
    minutes = float((match["minutes"] or "0").replace(",", "."))
    seconds = float((match["seconds"] or "0").replace(",", "."))
    angle = int(match["degrees"]) + minutes / 60 + seconds / 3600
    if match["sign"] == "-":
        angle = -angle
    return angle, f"°{match['direction'] or ''}"


PART = re.compile(
    r"(\d+(?:\.\d+)?) ?([A-Za-zµμ]+|['′’\"″”]|'')\.?(?: and |,? ?)", re.ASCII
)
"""A number with a unit, and the separator after it."""


def sum_of_parts(text: str) -> tuple[float, str] | None:
    """Parse a sum such as 1h 30m in its first unit; None if the text is not a sum."""
    if PART.sub("", f"{text} ").strip():
        return None
    parts = PART.findall(f"{text} ")
    if len(parts) < 2:
        return None
    first_unit = _lower_letter(parts[0][1])
    total = 0.0
    previous_factor = math.inf
    for number, unit in parts:
        conversion = conversion_between(_lower_letter(unit), first_unit)
        if (
            conversion is None
            or conversion.offset
            or conversion.factor >= previous_factor
        ):
            return None
        total += float(number) * conversion.factor
        previous_factor = conversion.factor
    return total, first_unit


def _lower_letter(unit: str) -> str:
    if len(unit) == 1:
        return unit.lower()
    return unit
