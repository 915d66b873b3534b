"""kube-state-metrics: no accelerator, but it knows which pod has which address, and on which node it runs.

Only ``kube_pod_info`` is read, for the join of devices to the engines that hold them.
"""

from typing import Final

from collector.accelerators._labels import UNREAD_SIGNALS
from goodwatch.core.engine import Engine

ACCELERATOR: Final = Engine(
    name="kube_state",
    title="kube-state-metrics",
    docs="kube-state-metrics documentation, pod metrics",
    role="accelerator",
    prefixes=("kube_pod_",),
    signals={},
    absent=UNREAD_SIGNALS,
    model_labels=(),
    hints={"off": "kube-state-metrics serves metrics on port 8080."},
)
