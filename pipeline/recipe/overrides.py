"""Settings laid over those of a recipe: for one run, or for a variant."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.sources.hub.catalog import short_form

# sections that a name alone can stand for, and the key that takes it
PRESETS = {"quality": "profile", "model": "size", "decontamination": "sets"}
CORPORA, POST_TRAINING = "corpora", "post_training"
OWN_RULES = ("edits", "scrub", "quality")  # the sections that a corpus changes for itself

Settings = dict[str, Any]


def merged(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """`settings` changed by `overrides`: sections merge, everything else is replaced. The name of a preset
    counts as a section, and so do the corpora, `corpora: {books: {weight: 2}}`.

    Raises ValueError for a corpus that the settings do not have, and SourceError.
    """
    result = dict(settings)
    for key, value in overrides.items():
        section = result.get(key)
        if key in PRESETS and isinstance(section, str):
            section = {PRESETS[key]: section}
        if key == CORPORA and isinstance(section, list) and isinstance(value, Mapping):
            result[key] = _by_name(section, value)
        elif isinstance(section, dict) and isinstance(value, Mapping):
            result[key] = merged(section, value)
        else:
            result[key] = value
    return result


def with_own_rules(settings: Any) -> Any:
    """The settings of a recipe in which the rules of each corpus are complete: those of the recipe, with the
    changes of the corpus. In a section of `post_training` a corpus changes the recipe's rules, too, but no
    quality rules apply there.
    """
    if not isinstance(settings, dict):
        return settings
    usual = {name: settings[name] for name in OWN_RULES if settings.get(name)}
    found = _with_complete_corpora(settings, usual)
    if isinstance(sections := settings.get(POST_TRAINING), dict):
        usual_there = {name: rules for name, rules in usual.items() if name != "edits"} | {"quality": "none"}
        completed = {name: _with_complete_corpora(one, usual_there) for name, one in sections.items()}
        found |= {POST_TRAINING: completed}
    return found


def _with_complete_corpora(settings: Any, usual: Settings) -> Any:
    if not isinstance(settings, dict) or not isinstance(settings.get(CORPORA), list | tuple):
        return settings
    return settings | {CORPORA: [_complete(corpus, usual) for corpus in settings[CORPORA]]}


def _complete(corpus: Any, usual: Settings) -> Any:
    if not isinstance(corpus, dict):
        return corpus
    own = {name: corpus[name] for name in OWN_RULES if corpus.get(name) is not None}
    return corpus | merged({name: usual[name] for name in own if name in usual}, own)


def _by_name(corpora: list[Any], overrides: Mapping[str, Any]) -> list[Any]:
    """A list of corpora, of which those that `overrides` names are changed."""
    names = [short_form(one)[0] if isinstance(one, str) else one.get("name") for one in corpora]
    if unknown := [name for name in overrides if name not in names]:
        raise ValueError(f"corpora.{unknown[0]}: no such corpus; choose from {', '.join(map(str, names))}")
    return [
        merged(long_form(corpus), overrides[name]) if name in overrides else corpus
        for name, corpus in zip(names, corpora, strict=True)
    ]


def long_form(corpus: Any) -> Any:
    """The section that `tinystories:1000` stands for; anything else as it is. Raises SourceError."""
    if not isinstance(corpus, str):
        return corpus
    name, source = short_form(corpus)
    return {"name": name, "source": source.model_dump(mode="json")}


def changed(given: Mapping[str, Any], usual: Mapping[str, Any]) -> Settings:
    """The settings in `given` that differ from those in `usual`, nested alike."""
    found: Settings = {}
    for name, value in given.items():
        before = usual.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            found |= {name: inside} if (inside := changed(value, before)) else {}
        elif value != before:  # a section that is set at all differs from None
            found[name] = changed(value, {}) if isinstance(value, Mapping) else value
    return found


def leaves(settings: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Each value in nested `settings` after its dotted name. An empty mapping is a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value
