"""A model card says what the file and the stored results say, and nothing else."""

from pathlib import Path

import pytest

from thera.errors import InvalidInput
from thera.evaluation.cards import card, stored
from thera.models.loading import shipped

ABOUT = {
    "name": "edsr-air", "parameters": 1_228_801, "components": 32,
    "training": [
        {"start": "", "images": 10, "megapixels": 4.2, "patches": 640_000, "minutes": 1.5,
         "data": {"patch": 96, "batch": 64, "scales": [1.2, 4.0]}, "optimiser": {"rate": 5e-4}},
    ],
}  # fmt: skip


DAMAGE = {
    "blur": 0.5, "blur_sigma": [0.3, 1.2], "noise": 0.3, "noise_level": [0.5, 7.0],
    "jpeg": 0.2, "jpeg_quality": [30, 98],
}  # fmt: skip
RESTORING = ABOUT | {
    "backbone": "edsr", "variant": "air", "restores": True,
    "training": [ABOUT["training"][0] | {"degradation": DAMAGE}],
}  # fmt: skip


def record(value, **changes):
    base = {"method": "edsr-air+", "identity": "a", "data": "Set5", "image": "baby.png", "scale": 2}
    return base | {"psnr_y": value} | changes


def test_scores_are_the_means_of_the_stored_results():
    ours = [record(38.0), record(39.0, image="bird.png"), record(10.0, method="bicubic")]
    theirs = [record(37.0, method="LIIF+", image=image) for image in ("baby.png", "bird.png")]
    text = card(ABOUT, ours + theirs)
    assert "| Set5 ×2 | — | — | — | 38.50 | 37.00 | +1.50 |" in text
    assert "Set14" not in text


def test_one_pass_stands_beside_liifs_one_pass_and_the_ensemble_beside_its_ensemble():
    values = {"edsr-air": 38.0, "edsr-air+": 38.2, "LIIF": 37.9, "LIIF+": 38.0}
    text = card(ABOUT, [record(value, method=method) for method, value in values.items()])
    assert "| Set5 ×2 | 38.00 | 37.90 | +0.10 | 38.20 | 38.00 | +0.20 |" in text
    without = card(ABOUT, [record(value, method=m) for m, value in values.items() if m != "edsr-air"])
    assert "| Set5 ×2 | — | 37.90 | — | 38.20 | 38.00 | +0.20 |" in without


def test_a_model_that_restores_stands_beside_the_clean_one():
    about = RESTORING | {"name": "photo-air"}
    values = {"photo-air": 28.5, "edsr-air": 27.25}
    stored = [record(value, method=m, data="Set5 jpeg:40") for m, value in values.items()]
    text = card(about, [*stored, record(38.0)])
    assert "| Set5 jpeg:40 ×2 | 28.50 | 27.25 | +1.25 |" in text
    assert "noise of up to 7/255 and JPEG from quality 30" in text and "does not repair" not in text
    with pytest.raises(InvalidInput, match="No result of photo-air"):
        card(about, [record(38.0)])


def test_a_model_that_restores_states_its_command_and_the_mean_of_several_sets():
    values = {"Set5 jpeg:40": (28.5, 27.0), "Set14 jpeg:40": (27.0, 26.5), "Set14": (33.0, 33.5)}
    stored = [
        record(value, method=method, data=data)
        for data, both in values.items()
        for method, value in zip(("photo-air", "edsr-air"), both, strict=True)
    ]
    text = card(RESTORING | {"name": "photo-air"}, stored)
    assert "thera eval photo-air edsr-air --data Set5 Set14 --scales 2 --degrade jpeg:40 none " in text
    assert "| photo-air − edsr-air, dB, mean over Set5 and Set14 | ×2 |" in text
    assert "| jpeg:40 | +1.00 |" in text
    assert "mean over" not in card(RESTORING | {"name": "photo-air"}, stored[:2])


def test_a_model_trained_on_pairs_says_how_many_and_its_scores_on_others():
    stage = RESTORING["training"][0] | {"images": 12, "pairs": 2, "objective": {"align": True}}
    about = RESTORING | {"name": "zoom", "training": [stage]}
    values = {"zoom": (29.0, 0.82), "edsr-air": (27.0, 0.75), "bicubic": (26.0, 0.7), "other": (9.0, 0.1)}
    pairs = [
        record(psnr, method=m, data="Nikon", protocol="pairs 1", ssim=ssim, scale=2.9)
        | {"aligned": {"psnr_y": psnr + 0.01, "ssim": ssim + 0.01}}
        for m, (psnr, ssim) in values.items()
    ]
    single = [record(38.0, method="zoom"), record(38.5, method="edsr-air")]
    text = card(about, [*single, *pairs])
    assert "| Set5 ×2 | 38.00 | 38.50 | -0.50 |" in text
    assert "| one pass, as taken / aligned | zoom | edsr-air | bicubic |" in text
    assert "| Nikon, ×2.9: PSNR of Y, dB | 29.00 / 29.01 | 27.00 / 27.01 | 26.00 / 26.01 |" in text
    assert "| Nikon, ×2.9: SSIM | 0.8200 / 0.8300 | 0.7500 / 0.7600 | 0.7000 / 0.7100 |" in text
    assert "| 2 pairs, 10 with copies, 4.2 Mpx |" in text and "L1, pairs aligned |" in text
    without = card(RESTORING | {"name": "photo-air"}, [*single, record(38.0, method="photo-air"), *pairs])
    assert "aligned" not in without and "City100" not in without


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({}, "- It does not repair JPEG blocks, noise, dust or scratches."),
        ({"noise": 0.3}, "- It sees through noise of up to 7/255. "),
        (
            {"blur": 0.3, "jpeg": 0.1},
            "blur of up to 1.2 input pixels and JPEG from quality 30. ",
        ),
    ],
)
def test_a_card_names_the_damage_that_was_drawn_and_pairs_alone(shares, sentence):
    damage = DAMAGE | {"blur": 0.0, "noise": 0.0, "jpeg": 0.0} | shares
    stage = RESTORING["training"][0] | {"images": 2, "pairs": 2, "degradation": damage}
    about = RESTORING | {"name": "zoom", "training": [stage]}
    text = card(about, [record(38.0, method="zoom"), record(38.5, method="edsr-air")])
    assert sentence in text and "| 2 pairs, 4.2 Mpx |" in text


def test_stages_are_counted_in_patches_of_48():
    text = card(ABOUT, [record(38.0)])
    assert "2.6 million patches" in text
    assert (
        "| random | 10 with copies, 4.2 Mpx | 96² | ×1.2 to ×4, uniform | images, L1 | 10,000 × 64 |" in text
    )


def test_a_stage_under_a_teacher_names_it():
    taught = {**ABOUT["training"][0], "start": "edsr-air", "teacher": {"model": "edsr-pro"}}
    assert "| what edsr-pro sees, L1 |" in card(ABOUT | {"training": [taught]}, [record(38.0)])
    half = taught | {"teacher": {"model": "edsr-pro", "share": 0.5}, "objective": {"loss": "mse"}}
    text = card(ABOUT | {"training": [half]}, [record(38.0)])
    assert "| 50% images and 50% what edsr-pro sees, MSE |" in text


@pytest.mark.parametrize("key", ["ensemble_weight", "together"])  # now, and in files of earlier versions
def test_the_ensemble_term_and_the_mean_of_stages_are_stated(key):
    once = ABOUT["training"][0]
    again = once | {"start": "stage 1", "objective": {"loss": "mse", key: 0.8}}
    text = card(ABOUT | {"training": [once, again, {"mean": [1, 2]}]}, [record(38.0)])
    assert "| images, MSE, 80% of it of the mean of four turns |" in text
    assert "| 3 | the mean of stages 1, 2 |" in text
    assert "5.1 million patches" in text
    assert "; 3 minutes" in text
    training = text[: text.index("## Scores")]
    assert len({row.count("|") for row in training.splitlines() if row.startswith("| ")}) == 1


def test_pictures_that_a_stage_names_are_said_with_what_was_held_out():
    once = ABOUT["training"][0]
    drawn = once | {"pictures": "7 photographs, 3 drawn pages"}
    text = card(ABOUT | {"training": [once, drawn, drawn, {"mean": [2, 3]}]}, [record(38.0)])
    assert "Pictures of stages 2, 3: 7 photographs, 3 drawn pages. Held out" in text
    assert "configs/validation.txt" not in card(ABOUT, [record(38.0)])


def test_a_model_without_results_has_no_card():
    with pytest.raises(InvalidInput, match="No result of edsr-air"):
        card(ABOUT, [record(38.0, method="edsr-plus+")])


@pytest.mark.parametrize("model", shipped(), ids=lambda model: model.name)
def test_shipped_cards_are_made_of_what_the_files_and_the_stored_results_say(model):
    """Their headers still have keys that training no longer knows."""
    records = stored(Path(__file__).parents[2] / "docs" / "results")
    assert any("detail" in stage.get("data", {}) for stage in model.metadata["training"])
    assert card(model.metadata, records) == model.safetensors.with_suffix(".md").read_text("utf-8")
