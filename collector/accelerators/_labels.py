"""What the labels of accelerator exporters say, whoever wrote them, and what all their tables share.

Every exporter spells pod and host in its own way, and a Prometheus in between prefixes what it scraped without
``honor_labels`` (G-D2: ``exported_pod``; old DCGM exporters: ``pod_name``). The spelling that is nearest to the
workload comes first: on a relayed page a plain ``pod`` is the exporter's own.
"""

from typing import Final

from goodwatch.core.catalogue import ACCELERATOR_SIGNALS
from goodwatch.core.engine import Absent

POD: Final = ("exported_pod", "pod", "pod_name", "podname")
NAMESPACE: Final = ("exported_namespace", "namespace", "pod_namespace", "podnamespace")
CONTAINER: Final = ("exported_container", "container", "container_name")
POD_UID: Final = ("pod_uuid",)
HOST: Final = ("Hostname", "hostname", "nodeid")
#: number of a device on its host; says nothing without the host
INDEX: Final = ("gpu", "gpu_id", "mlu", "minor_number", "deviceId", "device_id", "id")
PRODUCT: Final = ("modelName", "card_model", "model_name", "model")
#: a slice of a device that has its own memory and its own compute units (MIG)
INSTANCE: Final = "GPU_I_ID"

#: one device is told once per pod where pods share it (time-slicing), with one and the same value
REPEATED: Final = (*POD, *NAMESPACE, *CONTAINER, "job_id", "vgpu")

UNREAD: Final = Absent(why="no series of it is known from this exporter")
#: a reason for every signal; a table overrides those that it knows better
UNREAD_SIGNALS: Final = dict.fromkeys(sorted(ACCELERATOR_SIGNALS), UNREAD)

PERCENT: Final = 0.01
MIB: Final = 1024.0**2
MEGA: Final = 1e6
MILLI: Final = 1e-3
MICRO: Final = 1e-6
