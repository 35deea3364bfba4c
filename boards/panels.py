"""What the boards share: a board, its rows, and a class for each kind of panel.

A panel names its unit, and its description says what the value means and what to do when it is bad. Every query goes to
the data source that the user chooses. Queries take `max` or `sum` over replicas: only the leading one decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, text, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from grafana_foundation_sdk.cog.builder import Builder

DOCS_URL: Final = "https://git.example.com/team/gpu-scheduler/blob/main/docs"
"""Where links of the boards find the pages of docs/. Whoever installs the boards may replace it."""
TAG: Final = "gpu-scheduler"
WIDTH: Final = 24
"""Columns of a board, by Grafana's grid."""
MOST_CELLS: Final = 1000
"""Cells that a grid shows; Grafana's default is 25."""
DATA_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

JOB: Final = 'job=~"gpu-scheduler(-controller|-webhook|-monitor|-driver)?"'
"""Selects all programs, by the jobs of the ServiceMonitors."""
DECIDER: Final = 'job="gpu-scheduler"'
CONTROLLER: Final = 'job="gpu-scheduler-controller"'
ON_NODES: Final = 'job=~"gpu-scheduler-(monitor|driver)"'
"""Selects the programs of which each node has one."""

GREEN, ORANGE, RED, BLUE, PURPLE, PLAIN = "green", "orange", "red", "blue", "purple", "text"
STATE_COLORS: Final = {"held": BLUE, "cordoned": PURPLE, "unhealthy": RED, "unavailable": ORANGE, "free": GREEN}
"""The states of `gpu_scheduler_node_gpus`, in its order."""

Level = tuple[float | None, str]
"""A value from which on a color applies; None for the lowest."""
NEUTRAL: Final[tuple[Level, ...]] = ((None, PLAIN),)


def rising(*levels: Level) -> tuple[Level, ...]:
    """Return levels of a value that is fine while it is low."""
    return (None, GREEN), *levels


def falling(*levels: Level) -> tuple[Level, ...]:
    """Return levels of a value that is bad while it is low."""
    return (None, RED), *levels


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL, and how its series are named: a text with labels as `{{label}}`."""

    expr: str
    legend: str = "__auto"


def quantiles(metric: str, *by: str, of: tuple[float, ...] = (0.5, 0.99)) -> tuple[Query, ...]:
    """Return a query for each quantile of a histogram, by these labels."""
    labels = ", ".join((*by, "le"))
    names = " ".join(f"{{{{{label}}}}}" for label in by)
    return tuple(
        Query(
            f"histogram_quantile({each}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))",
            f"{names} p{each * 100:g}".strip(),
        )
        for each in of
    )


_Builder = TypeVar("_Builder", stat.Panel, timeseries.Panel, statetimeline.Panel, table.Panel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(ABC):
    """A panel of a board. `height` is in Grafana's rows, `width` in its columns."""

    title: str
    description: str
    width: int = 12
    height: int = 8

    @abstractmethod
    def builder(self) -> Builder[models.Panel]:
        """Return the panel, ready to be placed on a board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPanel(Panel):
    """A panel that asks Prometheus. `names` shows a value as a text in a color."""

    unit: str = "none"
    levels: tuple[Level, ...] = NEUTRAL
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def _fill(self, panel: _Builder) -> _Builder:
        """Give the panel what all of them have."""
        panel.title(self.title).description(self.description).datasource(DATA_SOURCE)
        panel.span(self.width).height(self.height).unit(self.unit)
        steps = [models.Threshold(value, color) for value, color in self.levels]
        panel.thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        if self.names:
            panel.mappings([_mapping(self.names)])
        return panel


def _mapping(names: Mapping[int, tuple[str, str]]) -> models.ValueMap:
    return models.ValueMap({str(value): models.ValueMappingResult(*name) for value, name in names.items()})


def _targets(
    queries: tuple[Query, ...], *, as_table: bool = False, instant: bool = False
) -> Iterator[prometheus.Dataquery]:
    for ref_id, query in zip(ascii_uppercase, queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).ref_id(ref_id).datasource(DATA_SOURCE)
        target.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
        if instant:
            target.instant()
        else:
            target.range()
        yield target if as_table else target.legend_format(query.legend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(DataPanel):
    """One number, or the name of one series, as it is now."""

    query: Query
    named: bool = False
    width: int = 4
    height: int = 4

    def builder(self) -> Builder[models.Panel]:
        """Return the panel: the background has the color of the value's level."""
        panel = self._fill(stat.Panel())
        panel.targets(list(_targets((self.query,), instant=True)))
        panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        panel.graph_mode(common.BigValueGraphMode.NONE)
        panel.color_mode(
            common.BigValueColorMode.VALUE if self.levels == NEUTRAL else common.BigValueColorMode.BACKGROUND
        )
        return panel.text_mode(common.BigValueTextMode.NAME if self.named else common.BigValueTextMode.VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(DataPanel):
    """A cell for each series of an instant query, which has one label; sorted by that label."""

    query: str
    label: str

    def builder(self) -> Builder[models.Panel]:
        """Return the panel. As a table the cells have an order; the series of an instant query have none."""
        panel = self._fill(stat.Panel())
        panel.targets(list(_targets((Query(self.query),), as_table=True, instant=True)))
        sort = {"fields": {}, "sort": [{"field": self.label}]}
        panel.with_transformation(models.DataTransformerConfig(id_val="sortBy", options=sort))
        panel.reduce_options(common_builders.ReduceDataOptions().values(True).limit(MOST_CELLS).calcs([]))
        panel.graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.BACKGROUND)
        return panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries(DataPanel):
    """Lines over time, or areas upon each other. `colors` are those of series by name."""

    queries: tuple[Query, ...]
    stacked: bool = False
    colors: Mapping[str, str] = field(default_factory=dict)

    def builder(self) -> Builder[models.Panel]:
        """Return the panel. Its legend has the last value and the highest."""
        panel = self._fill(timeseries.Panel()).min(0)
        panel.targets(list(_targets(self.queries)))
        legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
        panel.legend(legend.display_mode(common.LegendDisplayMode.TABLE).calcs(["lastNotNull", "max"]))
        hovered = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
        panel.tooltip(hovered.sort(common.SortOrder.DESCENDING))
        panel.fill_opacity(60 if self.stacked else 10).line_width(1)
        if self.stacked:
            panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
        if self.levels != NEUTRAL:
            dashed = common.GraphTresholdsStyleMode.DASHED
            panel.thresholds_style(common_builders.GraphThresholdsStyleConfig().mode(dashed))
        for name, color in self.colors.items():
            fixed = models.FieldColor(mode=models.FieldColorModeId.FIXED, fixed_color=color)
            panel.override_by_name(name, [models.DynamicConfigValue("color", fixed)])
        return panel


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimeline(DataPanel):
    """A bar for each series, whose color is its state at that time."""

    query: Query

    def builder(self) -> Builder[models.Panel]:
        """Return the panel."""
        panel = self._fill(statetimeline.Panel())
        panel.targets(list(_targets((self.query,))))
        panel.color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        legend = common_builders.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
        panel.legend(legend.display_mode(common.LegendDisplayMode.LIST))
        return panel.show_value(common.VisibilityMode.NEVER).merge_values(True).row_height(0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of values. `bar` draws the value as a bar from 0 to this maximum."""

    title: str
    expr: str
    unit: str = "none"
    levels: tuple[Level, ...] = NEUTRAL
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    bar: float | None = None

    def properties(self) -> Iterator[models.DynamicConfigValue]:
        """Yield what Grafana is asked to do with the column's field."""
        yield models.DynamicConfigValue("unit", self.unit)
        steps = [models.Threshold(value, color) for value, color in self.levels]
        absolute = models.ThresholdsConfig(mode=models.ThresholdsMode.ABSOLUTE, steps=steps)
        yield models.DynamicConfigValue("thresholds", absolute)
        if self.names:
            yield models.DynamicConfigValue("mappings", [_mapping(self.names)])
        if self.bar is not None:
            yield models.DynamicConfigValue("min", 0)
            yield models.DynamicConfigValue("max", self.bar)
            cell = common.TableBarGaugeCellOptions(mode=common.BarGaugeDisplayMode.BASIC)
            yield models.DynamicConfigValue("custom.cellOptions", cell)
        elif self.levels != NEUTRAL or self.names:
            basic = common.TableCellBackgroundDisplayMode.BASIC
            yield models.DynamicConfigValue("custom.cellOptions", common.TableColoredBackgroundCellOptions(mode=basic))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(DataPanel):
    """A row for each combination of labels. Each column is an instant query that has exactly these labels.

    `last` are labels that stand behind the columns. `links` leads from the cells of a label to an address.
    """

    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    last: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    descending: str = ""

    def builder(self) -> Builder[models.Panel]:
        """Return the panel: the answers are merged by their labels, and the columns named."""
        panel = self._fill(table.Panel()).show_header(True)
        queries = tuple(Query(column.expr) for column in self.columns)
        panel.targets(list(_targets(queries, as_table=True, instant=True)))
        # Grafana calls the values of one answer Value, and those of several Value #A and so on.
        values = (
            ["Value"]
            if len(self.columns) == 1
            else [f"Value #{ref_id}" for ref_id, _ in zip(ascii_uppercase, queries, strict=False)]
        )
        order = {name: place for place, name in enumerate((*self.labels, *values, *self.last))}
        titles = dict(zip(values, (column.title for column in self.columns), strict=True))
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": titles}
        panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))
        first = self.descending or self.labels[0]
        sorted_by = common_builders.TableSortByFieldState().display_name(first).desc(bool(self.descending))
        panel.sort_by([sorted_by])
        for column in self.columns:
            panel.override_by_name(column.title, list(column.properties()))
        for label, address in self.links.items():
            link = models.DashboardLink(
                title="What to do", type_val=models.DashboardLinkType.LINK, url=address, target_blank=True
            )
            panel.override_by_name(label, [models.DynamicConfigValue("links", [link])])
        return panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Panel):
    """A text in Markdown."""

    content: str

    def builder(self) -> Builder[models.Panel]:
        """Return the panel."""
        panel = text.Panel().title(self.title).description(self.description).span(self.width).height(self.height)
        return panel.mode(TextMode.MARKDOWN).content(self.content)


@dataclass(frozen=True, slots=True)
class Row:
    """A row with a title, which a user can collapse. The first row of a board has no title and is always open."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the board: one or several values of a label of a metric, or all."""

    label: str
    metric: str

    def builder(self) -> Builder[models.VariableModel]:
        """Return the variable, with which all values are chosen at first."""
        variable = builders.QueryVariable(self.label).label(self.label.capitalize()).datasource(DATA_SOURCE)
        variable.query(f"label_values({self.metric}, {self.label})").all_value(".+").multi(True).include_all(True)
        variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        return variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
            models.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC
        )


@dataclass(frozen=True, slots=True)
class Board:
    """A board. Its uid never changes, so that links to it stay valid."""

    name: str
    question: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    def dashboard(self) -> models.Dashboard:
        """Return the board as Grafana reads it."""
        board = builders.Dashboard(f"gpu-scheduler / {self.name.capitalize()}").uid(f"gpu-scheduler-{self.name}")
        board.description(self.question).tags([TAG]).readonly().timezone("browser")
        board.time("now-3h", "now").refresh("30s").tooltip(models.DashboardCursorSync.CROSSHAIR)
        others = builders.DashboardLink("Boards of gpu-scheduler").type(models.DashboardLinkType.DASHBOARDS)
        board.link(others.tags([TAG]).as_dropdown(False).keep_time(True).include_vars(True))
        page = builders.DashboardLink("How to read this").type(models.DashboardLinkType.LINK).icon("doc")
        board.link(page.url(f"{DOCS_URL}/boards.md").target_blank(True))
        board.with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        for variable in self.variables:
            board.with_variable(variable.builder())
        for row in self.rows:
            _add(board, row)
        built = board.build()
        for number, panel in enumerate(_all(built), 1):
            panel.id_val = number
        return built


def _add(board: builders.Dashboard, row: Row) -> None:
    if row.collapsed:
        closed = builders.Row(row.title)
        for panel in row.panels:
            closed.with_panel(panel.builder())
        board.with_row(closed)
        return
    if row.title:
        board.with_row(builders.Row(row.title))
    for panel in row.panels:
        board.with_panel(panel.builder())


def _all(board: models.Dashboard) -> Iterator[models.Panel | models.RowPanel]:
    for panel in board.panels or ():
        yield panel
        if isinstance(panel, models.RowPanel):
            yield from panel.panels
