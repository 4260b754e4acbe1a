"""Views that `evaluate --tta` names."""


def test_an_unknown_view_is_refused_before_models_are_opened(run) -> None:
    status, _, said = run(
        "evaluate", "--model", "none.pt,network=none:None", "--on", "val=street", "--tta", "flip,spin"
    )
    assert status == 2
    assert "--tta flip,spin: view 'spin' is unknown; there are identity, flip, scale 0.75" in said
