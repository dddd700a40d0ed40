"""How an asset is declared: its key, what it depends on, its checks, and what becomes of errors.

The checks run inside the step of their asset, because a separate step would take half as long again.
"""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from pipeline.assets.operations.console import STOPPED
from pipeline.assets.operations.edited_recipe import added_since
from pipeline.assets.operations.resources import PipelineResources
from pipeline.assets.used_recipe import UsedRecipe
from pipeline.steps.checks import Subject, of_key
from pipeline.steps.stage import Page
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.manifest import Version
from trainer.system import terminal

log = logging.getLogger(__name__)
# Dagster calls references to code and observable sources beta, and would say so for each at every start.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

# Dagster takes any settings for a step that has none, and the step would run without a word.
NO_CONFIG: dict[str, Any] = {}

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


class StoppedError(dg.DagsterExecutionInterruptedError):
    """Somebody stopped the run; the message says what is saved."""


def asset(
    key: Key,
    page: Page,
    made_from: Iterable[Key | dg.AssetKey],
    *,
    version: str,
    used: UsedRecipe,
    section: str = "",
    made_by: Callable[..., Any] | None = None,
    pool: str | None = None,
) -> Callable[[Callable[..., dg.MaterializeResult]], dg.AssetsDefinition]:
    """Declares the asset that the store keeps under `key`, with its checks. A mistake of the user fails the
    step of the asset with a message. In a `section` of `post_training`, the function gets the workshop of
    that section, whose assets `made_from` names by their keys in the store, and others by Dagster's.
    `made_by` is the function to which the UI links, where that is not the decorated one.
    """

    def declared(function: Callable[..., dg.MaterializeResult]) -> dg.AssetsDefinition:
        code = (made_by or function).__code__
        # Dagster's own `with_source_code_references` would name the file of the decorator.
        place = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno)
        own = used.asset(key, section)
        checks = [
            dg.AssetCheckSpec(check.name, asset=own, blocking=check.blocking, description=check.description)
            for check in of_key(key)
        ]
        return dg.asset(
            key=own,
            deps={read if isinstance(read, dg.AssetKey) else used.asset(read, section) for read in made_from},
            group_name=used.name(section or page.group),
            kinds=set(page.kinds),
            code_version=version,
            check_specs=checks,
            description=page.description,
            pool=pool,
            config_schema=None if "config" in inspect.signature(function).parameters else NO_CONFIG,
            metadata={"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[place])},
        )(user_errors_as_failures(_shown(given(used, section)(function), "/".join(own.path))))

    return declared


def given(used: UsedRecipe, section: str = "") -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Gives a function that Dagster calls the workshop of a recipe, or that of a `section` of its
    `post_training`. Dagster takes the key of a resource from the name of a parameter, and each recipe has a
    resource of its own.
    """

    def renamed(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Outcome:
            workshop = kwargs.pop(used.workshop)
            return function(*args, workshop=workshop.of(section), **kwargs)

        names = {"workshop": used.workshop}
        signature = inspect.signature(function)
        parameters = [
            parameter.replace(name=names.get(parameter.name, parameter.name), kind=parameter.kind)
            for parameter in signature.parameters.values()
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {names.get(name, name): kind for name, kind in run.__annotations__.items()}
        return run

    return renamed


def _shown(function: Callable[Arguments, Outcome], step: str) -> Callable[Arguments, Outcome]:
    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        terminal.next_stage()
        with terminal.doing(f"{step}: at work"):
            return function(*args, **kwargs)

    return run


def check_results(workshop: PipelineResources, version: Version) -> Iterator[dg.AssetCheckResult]:
    """Runs the checks of a version, and also logs each failure."""
    subject = Subject(version, workshop.store, workshop.recipe)
    for check in of_key(version.key):
        with terminal.doing(f"{version.key}: checking {check.name.replace('_', ' ')}"):
            found = check.look(subject)
        if not found.passed:
            log.log(logging.ERROR if check.blocking else logging.WARNING, "%s", found.message)
        yield dg.AssetCheckResult(
            passed=found.passed,
            check_name=check.name,
            severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
            description=workshop.used.meant(found.message),
            metadata={
                name: float(f"{number:.4g}") if isinstance(number, float) else number
                for name, number in found.numbers.items()
            },
        )


def user_errors_as_failures(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Makes a mistake that the user can correct a failure of the step, with its message and no retry. Says of
    a step that somebody stopped what becomes of its work.
    """

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome:
        try:
            return function(*args, **kwargs)
        except PipelineError as error:
            since = added_since(dg.OpExecutionContext.get())
            raise dg.Failure(f"{error}{since}", allow_retries=False) from None
        except dg.DagsterExecutionInterruptedError as stopped:
            context = dg.OpExecutionContext.get()
            if context.run.remote_job_origin is None:  # started in a terminal
                # Ctrl-C is the wish of a person, as Terminate is in the UI. Dagster would count it as failed.
                context.instance.report_run_canceling(context.run)
            if isinstance(stopped, StoppedError):
                raise
            raise StoppedError(STOPPED) from None

    return run
