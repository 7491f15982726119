"""A tiny gazetteer in the layout of the wheel."""

import json
import zipfile

from tf_largeout.datasets import place_names


def place(geonameid, name, alternatenames=(), **fields):
    return {
        "geonameid": geonameid,
        "name": name,
        "alternatenames": list(alternatenames),
        "countrycode": "DE",
        "admin1code": "01",
        "population": 1000,
    } | fields


def write_wheel(path, places, countries=None):
    countries = countries or {"DE": {"name": "Germany"}, "US": {"name": "United States"}}
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(place_names.CITIES, json.dumps({str(p["geonameid"]): p for p in places}))
        wheel.writestr(place_names.COUNTRIES, json.dumps(countries))
    return path


def many_places(num_places=40):
    """Returns places. Place i has i % 4 + 1 unique names, and one that all places share."""
    return [
        place(100 + i, f"Town{i}", [f"Town{i} form {j}" for j in range(i % 4)] + ["Newtown"])
        for i in range(num_places)
    ]
