"""Pictures of what methods predict."""

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Panel:
    """One picture and what it shows; None where it could not be drawn. One that stands alone has a method's style."""

    title: str
    chart: Markup | None
    style: int | None = None


@dataclass(frozen=True)
class PanelRow:
    """Pictures that belong together; those of a method carry its style."""

    title: str
    panels: list[Panel]
    style: int | None = None
