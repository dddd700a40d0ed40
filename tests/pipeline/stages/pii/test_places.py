"""Values are found, and look-alikes stay, in thousands of generated places."""

import pytest

from tests.pipeline.stages.pii.places import LOOKS, places, scores, share

LEAST = {"general": 0.995, "hostile": 0.94, "copied": 0.95}  # of each kind
LEAST_OF_PHONES, LEAST_OF_NATIONAL = 0.985, 0.97
MOST = {"alone": 0.02, "beside words": 0.06}


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_values_are_found_and_lookalikes_stay_in_generated_places(every: int) -> None:
    hits = scores(list(places(1, seed=3))[every // 2 :: every])
    for held_out in (False, True):
        short = {
            (which, kind): found
            for which, kind in {key[:2] for key in hits if key[0] in LEAST and key[2] == held_out}
            if (found := share(hits, which, kind, held_out))
            < (LEAST_OF_PHONES if (which, kind) == ("general", "phone") else LEAST[which])
        }
        assert short == {}
        assert share(hits, "national", None, held_out) >= LEAST_OF_NATIONAL
        assert {which for which in LOOKS if share(hits, which, None, held_out) > MOST[which]} == set()
