"""`thera models`: list the models that come with Thera."""

from typing import Any

import click

from thera.cli.feedback import json_text

#: What each variant is good for; the numbers are in the model cards.
DESCRIPTIONS = {
    "air": "small and quick",
    "plus": "sees more around every pixel",
    "pro": "attention over windows; the best and the slowest",
}
RESTORING = "sees through JPEG blocks, noise and blur"
PAIRS = "for camera pictures: learnt from pairs of two focal lengths"


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")
def command(as_json: bool) -> None:
    """List the models that come with Thera.

    Besides these names, --model takes a file (ONNX, safetensors, or a published checkpoint) and
    hf:owner/repository.
    """
    from thera.imaging import DEFAULT_MODEL, RESTORING_MODEL
    from thera.models import shipped

    found = shipped()
    if as_json:
        records = [
            {
                "name": model.name,
                "backbone": model.spec.backbone,
                "variant": model.spec.variant,
                "parameters": model.parameters,
                "restores": bool(model.metadata.get("restores")),
                "bytes": model.safetensors.stat().st_size,
                "default": model.name == DEFAULT_MODEL,
            }
            for model in found
        ]
        click.echo(json_text(records, indent=2))
        return
    defaults = {
        DEFAULT_MODEL: " (default)",
        RESTORING_MODEL: " (default of upscale for JPEGs and noisy pictures)",
    }
    for model in found:
        default = defaults.get(model.name, "")
        size = model.safetensors.stat().st_size / 1e6
        text = about(model.spec.variant, model.metadata)
        click.echo(
            f"{model.name:<12} {model.parameters / 1e6:5.2f} M parameters {size:5.1f} MB  {text}{default}"
        )


def about(variant: str, metadata: dict[str, Any]) -> str:
    """What a model is for, in a few words."""
    if any("pairs" in stage for stage in metadata.get("training", [])):
        return PAIRS
    if not metadata.get("restores"):
        return DESCRIPTIONS[variant]
    return f"{RESTORING}; {DESCRIPTIONS[variant]}" if variant == "air" else RESTORING
