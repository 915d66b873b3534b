"""Files beside the boards: Grafana's provisioning, Kubernetes objects, and dashboard-linter's exclusions."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from dashboards.lint import EXCUSED, excused

FOLDER: Final = "goodwatch"
#: where a Grafana in a container finds the boards
MOUNT: Final = "/etc/grafana/provisioning/dashboards/goodwatch"


def dumped(*documents: Any) -> str:
    """YAML documents, keys in their order."""
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, allow_unicode=True, width=1000) for one in documents)


def provider(path: str = MOUNT) -> str:
    """The provider file: Grafana reads boards from a folder, and nobody edits them there."""
    one = {
        "name": "goodwatch", "orgId": 1, "folder": "goodwatch", "folderUid": FOLDER, "type": "file", "disableDeletion": False,
        "allowUiUpdates": False, "updateIntervalSeconds": 30, "options": {"path": path, "foldersFromFilesStructure": False},
    }  # fmt: skip
    return dumped({"apiVersion": 1, "providers": [one]})


def data_source(url: str, page_url: str = "") -> str:
    """The data source file of a Prometheus; with the address of goodwatch's pages a dot on a panel leads to its trace."""
    options: dict[str, Any] = {"httpMethod": "POST", "timeInterval": "15s"}
    if page_url:
        # Grafana reads $NAME in these files as an environment variable; $$ is a $.
        link = f"{page_url}/requests/$${{__value.raw}}"
        options["exemplarTraceIdDestinations"] = [
            {"name": "trace_id", "url": link, "urlDisplayLabel": "Trace in goodwatch"}
        ]
    one = {
        "name": "Prometheus", "uid": "goodwatch-prometheus", "type": "prometheus", "access": "proxy", "url": url, "isDefault": True,
        "jsonData": options,
    }  # fmt: skip
    return dumped({"apiVersion": 1, "datasources": [one]})


def config_maps(texts: Mapping[str, str]) -> str:
    """One ConfigMap a board, for the sidecar of Grafana's chart: by its label and folder annotation."""
    return dumped(
        *(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": name.replace("_", "-"), "labels": {"grafana_dashboard": "1"},
                    "annotations": {"grafana_folder": "goodwatch"},
                },
                "data": {f"{name}.json": text},
            }
            for name, text in sorted(texts.items())
        )
    )  # fmt: skip


def operator_objects(texts: Mapping[str, str]) -> str:
    """One GrafanaDashboard a board, for the Grafana operator (v5)."""
    return dumped(
        *(
            {
                "apiVersion": "grafana.integreatly.org/v1beta1",
                "kind": "GrafanaDashboard",
                "metadata": {"name": name.replace("_", "-")},
                "spec": {
                    "instanceSelector": {"matchLabels": {"dashboards": "grafana"}}, "folder": "goodwatch", "json": text,
                },
            }
            for name, text in sorted(texts.items())
        )
    )  # fmt: skip


def linter_exclusions(boards: Mapping[str, Mapping[str, Any]]) -> str:
    """The ``.lint`` file of Grafana's dashboard-linter: which rule does not hold for which board, and why."""
    return dumped(
        {
            "exclusions": {
                rule: {
                    "reason": reason,
                    "entries": [
                        {"dashboard": board["title"]} for _, board in sorted(boards.items()) if excused(board, rule)
                    ],
                }
                for rule, reason in EXCUSED.items()
            }
        }
    )
