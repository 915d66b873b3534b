"""The section of the configuration file for the weekly report: its language, when it is due, and who gets it."""

from typing import Literal

from pydantic import Field

from alerts.schedule import DAYS, minutes_of
from goodwatch.app._alert_sections import Day, TimeOfDay, ZoneName
from goodwatch.app._fields import Text
from goodwatch.core.section import Section


class Report(Section):
    """The weekly cost-down report. Money in it is USD."""

    language: Literal["en", "zh"] = Field(default="en", description="Language: en or zh.")
    weekday: Day = Field(
        default="mon", description="Day of the next week on which a week's report is made: mon to sun."
    )
    at: TimeOfDay = Field(default="08:00", description="Time of day in its zone: 08:00.")
    zone: ZoneName = Field(
        default="UTC", description="Time zone of its weeks: Europe/Berlin. Clock changes are followed."
    )
    sinks: tuple[Text, ...] = Field(
        default=(), description="Names of alerting.sinks that are told of each report; nobody without it."
    )

    @property
    def day(self) -> int:
        """The day as a number, 0 is Monday."""
        return DAYS.index(self.weekday)

    @property
    def minutes(self) -> int:
        """Minutes after midnight."""
        return minutes_of(self.at)
