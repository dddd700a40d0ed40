"""The files that lm-evaluation-harness 0.4.13 wrote for an export, with fewer settings and questions."""

import json
from pathlib import Path
from typing import Any

STAMP = "2026-11-26T23-56-56.523227"
TASK = {"name": "own", "alias": "own", "sample_len": 4}


def sample(number: int, right: bool) -> dict[str, Any]:
    """A question with three answers, the first of which is the likeliest."""
    asked = f"Return the name of error {number}. This is a"
    likelihoods = ["-6.173091888427734", "-16.289520263671875", "-16.047473907470703"]
    return {
        "doc_id": number,
        "doc": {"question": asked, "choices": ["name", "dict", "error"], "gold": 0 if right else 2},
        "target": "0" if right else "2",
        "arguments": {
            f"gen_args_{place}": {"arg_0": asked, "arg_1": answer}
            for place, answer in enumerate((" name", " dict", " error"))
        },
        "resps": [[[one, "False"]] for one in likelihoods],
        "filtered_resps": [[one, "False"] for one in likelihoods],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
    }


def write(directory: Path, model: str, right: int = 3, **changes: Any) -> Path:
    """The results, of which `changes` replace some, and the samples beside them: `right` of four."""
    found: dict[str, Any] = {
        "results": {
            "own": TASK
            | {"acc,none": right / 4, "acc_stderr,none": 0.06056078175067057}
            | {"acc_norm,none": 0.5, "acc_norm_stderr,none": 0.06273730842308471}
        },
        "group_subtasks": {},
        "configs": {"own": {"task": "own", "output_type": "multiple_choice", "num_fewshot": 0}},
        "versions": {"own": 1.0},
        "n-shot": {"own": 0},
        "higher_is_better": {"own": {"acc": True, "acc_norm": True}},
        "n-samples": {"own": {"original": 4, "effective": 4}},
        "config": {
            "model": "hf",
            "model_args": {"pretrained": model},
            "model_num_parameters": 158016,
            "limit": None,
        },
        "lm_eval_version": "0.4.13",
        "model_source": "hf",
        "model_name": model,
    }
    directory.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps(sample(number, number < right)) for number in range(4)]
    (directory / f"samples_own_{STAMP}.jsonl").write_text("\n".join(rows) + "\n")
    path = directory / f"results_{STAMP}.json"
    path.write_text(json.dumps(found | changes))
    return path
