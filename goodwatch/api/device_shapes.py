"""What the API answers of accelerators. Pure."""

import math

from pydantic import BaseModel, Field

from goodwatch.app.view import DeviceView


class DeviceShape(BaseModel):
    """One accelerator now."""

    key: str = Field(description="UUID or serial number; a number behind its exporter's name where it has neither.")
    exporter: str
    product: str
    host: str
    index: str = Field(description="Its number on its host.")
    pods: list[str] = Field(description="Who holds it, as its exporter tells.")
    shared: str = Field(description="Who else holds it; of an exporter, which targets do.")
    basis: str = Field(description="How it was found to be this target's.")
    values: dict[str, float] = Field(description="By canonical signal, in canonical units.")


def device_shape(view: DeviceView) -> DeviceShape:
    """A device; a value that is not finite is left out."""
    return DeviceShape(
        key=view.key, exporter=view.exporter, product=view.product, host=view.host, index=view.index,
        pods=list(view.pods), shared=view.shared, basis=view.basis,
        values={name: value for name, value in view.values.items() if math.isfinite(value)},
    )  # fmt: skip
