"""Tools of the bicycle shop. `toolgate tools add tools/bikes.py` made their entries in tools.json."""

from dataclasses import dataclass
from typing import Literal

__version__ = "1.0.0"


@dataclass
class Item:
    """An item of an offer.

    Attributes:
        name: Name of the item.
        price: Price of one in euros.
        count: Number of them.
    """

    name: str
    price: float
    count: int = 1


def frame_size(height_cm: int, kind: Literal["city", "road", "mountain"] = "city") -> dict[str, int]:
    """Calculates the frame size of a bike that fits a person of some height. Use it to recommend a size.

    Args:
        height_cm: Height of the person in centimetres.
        kind: The kind of bike.
    """
    inseam = height_cm * 0.46
    factor = {"city": 0.66, "road": 0.7, "mountain": 0.57}[kind]
    return {"frame_cm": round(inseam * factor)}


def offer_total(items: list[Item], discount_percent: float = 0) -> dict[str, float]:
    """Adds up the items of an offer and takes off a discount. Use it to write an offer.

    Args:
        items: The items of the offer.
        discount_percent: Discount on the sum in percent.
    """
    total = sum(item.price * item.count for item in items)
    return {"total": round(total * (1 - discount_percent / 100), 2)}


def price_after_discount(price: float, percent: float) -> dict[str, float]:
    """Calculates a price after a discount in percent.

    Args:
        price: The price in euros.
        percent: The discount in percent.
    """
    return {"price": round(price * (1 - percent / 100), 2)}
