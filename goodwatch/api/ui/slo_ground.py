"""What the pages of SLOs, alerts and incidents share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import Request, Response

from alerts.rules.values import Alert
from goodwatch.api.ui.render import Renderer
from goodwatch.app.alerting import Alerting
from goodwatch.app.slo_view import SloViews
from goodwatch.app.view import Views


@dataclass(frozen=True, slots=True)
class SloGround:
    """What the pages of SLOs, alerts and incidents are made of; ``rules`` are the alerts that are evaluated now."""

    slos: SloViews
    alerting: Alerting
    views: Views
    renderer: Renderer
    rules: Callable[[], Sequence[Alert]]

    def refused(self, request: Request, status: int, title: str, text: str) -> Response:
        """A page that says what is wrong with a request."""
        return self.renderer.page(request, "problem", {"title": title, "text": text}, status=status, live=False)
