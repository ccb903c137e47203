"""`thera models`: what ships with Thera."""

import json

import click

#: What each variant brings, in words; the figures are in the models' cards.
WORDS = {
    "air": "small and quick",
    "plus": "sees more around every pixel",
    "pro": "attention over windows; the best and the slowest",
}


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(as_json: bool) -> None:
    """List the models that ship with Thera.

    Beside these names, --model takes a file (ONNX, safetensors, or a published checkpoint) and
    hf:owner/repository.
    """
    from thera.imaging import DEFAULT_MODEL
    from thera.models import shipped

    found = shipped()
    if as_json:
        records = [
            {
                "name": model.name,
                "backbone": model.spec.backbone,
                "variant": model.spec.variant,
                "parameters": model.parameters,
                "bytes": model.onnx.stat().st_size,
                "default": model.name == DEFAULT_MODEL,
            }
            for model in found
        ]
        click.echo(json.dumps(records, indent=2))
        return
    for model in found:
        default = " (default)" if model.name == DEFAULT_MODEL else ""
        size = model.onnx.stat().st_size / 1e6
        click.echo(
            f"{model.name:<12} {model.parameters / 1e6:5.2f} M parameters {size:5.1f} MB"
            f"  {WORDS[model.spec.variant]}{default}"
        )
