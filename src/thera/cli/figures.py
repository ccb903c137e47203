"""`thera figures`: the paper's figures, from a model, an image and stored results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thera.cli.variadic import VariadicCommand
from thera.errors import InvalidInput

if TYPE_CHECKING:
    from thera.evaluation.records import Record

NAMES = (
    "derivatives",
    "zoom",
    "crops",
    "aliasing",
    "alias-scale",
    "bank",
    "low-pass",
    "local-fields",
    "psf",
    "psnr-scale",
    "pareto",
    "quality-cost",
)
FROM_MODEL = set(NAMES) - {"low-pass", "psnr-scale", "quality-cost"}
FROM_IMAGE = {"derivatives", "zoom", "crops", "low-pass", "alias-scale", "local-fields"}
FROM_RESULTS = {"psnr-scale", "pareto", "quality-cost"}


@click.command("figures", cls=VariadicCommand)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice([*NAMES, "all"]))
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL...",
    help="Crops, derivatives and alias-scale draw all; LABEL=PATH names one in the figure.",
)
@click.option("--image", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An image.")
@click.option(
    "--results",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE...",
    help="Results of `thera eval`, for psnr-scale and pareto; of `thera ablations` and `thera bench`, for "
    "quality-cost.",
)
@click.option("--data", help="The data set of the results to draw. Default: the first.")
@click.option(
    "--at",
    nargs=2,
    type=click.FloatRange(0, 1),
    metavar="ROW COLUMN",
    help="Where to look, as fractions of the height and width. Default: where there is most detail.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("figures"),
    show_default=True,
)
@click.option(
    "--format", "suffix", type=click.Choice(["png", "pdf", "svg"]), default="png", show_default=True
)
def command(
    names: tuple[str, ...],
    models: tuple[str, ...],
    image: Path | None,
    results: tuple[Path, ...],
    data: str | None,
    at: tuple[float, float] | None,
    out: Path,
    suffix: str,
) -> None:
    """Draw the paper's figures, from models, an image or results, or all of them but quality-cost.

    \b
    thera figures zoom crops --model edsr-pro --image baby.png
    thera figures psnr-scale --results results/eval.jsonl --data Set5
    thera figures quality-cost --results results/methods.jsonl results/bench.jsonl
    """
    from thera.evaluation.charts import cost_figure
    from thera.evaluation.figures import save
    from thera.evaluation.records import read_records
    from thera.evaluation.trained import Trained

    wanted = tuple(n for n in NAMES if n != "quality-cost") if "all" in names else names
    for needs, given, option in (
        (FROM_MODEL, models, "--model"),
        (FROM_IMAGE, image, "--image"),
        (FROM_RESULTS, results, "--results"),
    ):
        missing = [name for name in wanted if name in needs]
        if missing and not given:
            raise click.UsageError(f"Missing option '{option}', which is needed for {', '.join(missing)}.")
    drawn = FROM_MODEL & set(wanted) - {"alias-scale"}
    loaded = [_labelled(model) for model in models] if drawn else []
    stored = [record for path in results for record in read_records(path)]
    records = [record for record in stored if "method" in record]
    if results and not records:
        files = ", ".join(map(str, results))
        raise InvalidInput(f"{files} holds no result of `thera eval`: name a file that it wrote.")
    for name in wanted:
        path = out / f"{name}.{suffix}"
        if name == "quality-cost":
            bench = [record for record in stored if "encode_ms" in record]
            found = [path for path in results if path.with_suffix(".json").exists()] or results
            save(cost_figure(Trained.read(found[0]), bench), path)
        elif name == "alias-scale":
            save(_alias_scale(models, image, out), path)
        else:
            save(_draw(name, loaded, image, records, data, at), path)
        click.echo(f"Drew {path}.")


def _labelled(given: str) -> Any:
    """The model of a name, a path or LABEL=PATH, called by its label in figures."""
    from thera.evaluation.methods import parse_model
    from thera.models import load

    label, paths = parse_model(given)
    if len(paths) > 1:
        raise InvalidInput(f"{given!r} names {len(paths)} files, and a figure draws one: give LABEL=PATH.")
    model = load(paths[0])
    model.info = replace(model.info, name=label or model.name)
    return model


def _alias_scale(models: tuple[str, ...], image: Path | None, out: Path) -> Any:
    """Measure aliasing and equivariance into alias.jsonl beside the figure, and draw the former.

    What is stored there of the same picture is kept: models are added to others that are no longer at hand.
    """
    from thera.evaluation.aliasing import measure
    from thera.evaluation.charts import alias_scale_figure
    from thera.evaluation.images import read
    from thera.evaluation.methods import load_methods
    from thera.evaluation.records import json_lines, read_records
    from thera.files import replacing

    assert image is not None
    file_path = out / "alias.jsonl"
    methods = load_methods(models, ["nearest", "bicubic", "lanczos"], ensemble=False)
    found = measure(methods, read(image).pixels, read_records(file_path))
    out.mkdir(parents=True, exist_ok=True)
    with replacing(file_path) as file:
        file.write(json_lines(found).encode())
    return alias_scale_figure(found)


def _draw(
    name: str,
    models: list[Any],
    image: Path | None,
    records: list[Record],
    data: str | None,
    at: tuple[float, float] | None,
) -> Any:
    from thera.evaluation import charts, figures
    from thera.evaluation.images import read
    from thera.evaluation.inspection import added_parameters, bank_of

    if name == "bank":
        return charts.bank_figure(bank_of(models[0]), models[0].info.kappa, models[0].name)
    if name == "psf":
        return charts.psf_figure(models[0].info.kappa, models[0].name)
    if name == "aliasing":
        return figures.aliasing_figure(models[0])
    if name in FROM_RESULTS:
        data = data or records[0]["data"]
        if name == "psnr-scale":
            return charts.psnr_scale_figure(records, data)
        return charts.pareto_figure(records, {model.name: added_parameters(model) for model in models}, data)
    assert image is not None
    if name == "low-pass":
        return figures.low_pass_figure(image)
    pixels = read(image).pixels
    if name == "local-fields":
        return figures.local_fields_figure(models[0], pixels, at)
    if name == "crops":
        return figures.crops_figure(models, pixels, at)
    if name == "zoom":
        return figures.zoom_figure(models[0], pixels, at)
    return figures.derivatives_figure(models, pixels, at)
