"""The recipe, the store and the engine as one Dagster resource."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, cached_property, partial
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr, create_model

from pipeline.assets.operations import alerts, orphaned_runs, runs
from pipeline.assets.operations.launchpad import DedupKnobs, ShardKnobs, TrainingKnobs, differences, values
from pipeline.assets.operations.runs import PARENT_TAG, planned_steps, retrains, trains, variant_of
from pipeline.assets.used_recipe import OWN, UsedRecipe
from pipeline.recipe import variants
from pipeline.recipe.loading import load_recipe, stored_at
from pipeline.recipe.overrides import changed, merged
from pipeline.recipe.post_training import JOBS
from pipeline.recipe.recipe import Recipe, RecipeError
from pipeline.steps import stages
from pipeline.steps.recipe_versions import store_of
from pipeline.steps.stage import DataStage
from pipeline.steps.training import initial_weights, since_trained
from pipeline.steps.training.launcher import Launcher
from pipeline.store import keys, variant_names
from pipeline.store.engines.local import Engine, LocalEngine
from pipeline.store.errors import PipelineError
from pipeline.store.keys import Key
from pipeline.store.store import Store, StoreError, check_place, default_store
from pipeline.store.variant_names import BASE
from pipeline.store.versions import NotMadeError
from trainer.config.model import READ_HERE_ONLY
from trainer.system import terminal
from trainer.system.errors import install
from trainer.system.launch import missing_trackers, trackers_without_place

TRAINING_TAG = "training run"  # its name, by which the leaderboard and commands know it
TAG_LENGTH = 200
SHOWN_SETTINGS = 2  # in the name of a run
SETTINGS = ("training", "dedup", "shards", "overrides", "name", "notes")
KNOBS: dict[str, type[dg.Config]] = {"training": TrainingKnobs, "dedup": DedupKnobs, "shards": ShardKnobs}


class SettingsError(RecipeError, dg.DagsterError):
    """A setting of a run, the place of its store, or what it goes on with is invalid. Dagster shows its own
    errors as they are.
    """


class PipelineResources(dg.ConfigurableResource):
    """The recipe, the store and the engine of a run. Settings given here override the recipe for this run."""

    training: TrainingKnobs = TrainingKnobs()
    dedup: DedupKnobs = DedupKnobs()
    shards: ShardKnobs = ShardKnobs()
    overrides: dict[str, Any] = Field(
        default={}, description="Any other setting of the recipe, nested as in the recipe."
    )

    name: str | None = Field(default=None, description="A name for this run, shown in the list of runs.")
    notes: str | None = Field(default=None, description="Notes on this run, shown in the list of runs.")

    used: ClassVar[UsedRecipe] = OWN

    # the partition of the run
    _variant: str = PrivateAttr(BASE)
    _executes_one_step: bool = PrivateAttr(False)
    # of a run that trains from a bucket
    _check_nodes: Callable[[], None] | None = PrivateAttr(None)
    # those of the sections of `post_training`, by name
    _sections: dict[str, "PipelineResources"] = PrivateAttr(default_factory=dict)

    def of(self, section: str) -> "PipelineResources":
        """The same run with the recipe and the store of a section of `post_training`, if one is named."""
        if section and section not in self._sections:
            self._sections[section] = type(self)(**{name: getattr(self, name) for name in SETTINGS})
            self._sections[section]._variant = variant_names.tuned(self._variant, section)
            self._sections[section].__dict__.update(engine=self.engine, _in_progress=self._in_progress)
        return self._sections[section] if section else self

    @cached_property
    def recipe(self) -> Recipe:
        path = self.used.path
        _ = self.unchanged_recipe  # a mistake in the file names the file
        try:
            recipe = variants.load(path, self._variant, self.changes)
        except RecipeError as error:
            problem = str(error).removeprefix(f"{path}: ")
            raise SettingsError(f"the settings of this run, from the Launchpad or -c: {problem}") from None
        if not recipe.base:
            variants.check_graph(recipe, load_recipe(path), str(path))
        return recipe

    @cached_property
    def unchanged_recipe(self) -> Recipe:
        """The recipe, or the variant, as it is in its file."""
        return variants.load(self.used.path, self._variant)

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that this run was given."""
        knobs = {name: getattr(self, name).model_dump(exclude_none=True) for name in KNOBS}
        # The Launchpad opens with the values of the recipe: given as they are, defaults would count as set.
        ours = changed(knobs, load_recipe(self.used.path).model_dump(mode="json"))
        return merged(knobs if ours and self._variant == BASE else ours, self.overrides)

    @cached_property
    def stages(self) -> Mapping[Key, DataStage]:
        """All stages of the recipe, found once in a run: each step needs one of them."""
        return stages.of_recipe(self.recipe)

    @cached_property
    def store(self) -> Store:
        return store_of(self.recipe, self.unchanged_recipe, self.check_nodes)

    def check_nodes(self) -> None:
        """Checks once, before something is made, that the nodes on which the run will train can be used."""
        if self._check_nodes:
            self._check_nodes()

    @cached_property
    def engine(self) -> Engine:
        params = self.recipe.engine
        if params.kind == "local":
            return LocalEngine(params.workers)
        try:
            from pipeline.store.engines.ray import RayEngine
        except ModuleNotFoundError as error:
            raise RecipeError(
                f"{self.used.path}: engine.kind ray needs the package ray: run {install('ray')}"
            ) from error
        return RayEngine(params)

    @cached_property
    def _in_progress(self) -> ExitStack:
        return ExitStack()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Raises for invalid settings, frees the pools of killed runs, tags the run with its own settings."""
        instance, run = context.instance, context.run
        self._variant = variant_of(run, self.used)
        stored = instance.get_run_by_id(run.run_id) if instance and run else None
        if stored and stored.is_finished:
            # `dagster job execute` sets resources up once more for its result: what makes the recipe invalid
            # is then what a person reads in the terminal.
            _ = self.recipe
            return
        if (problem := alerts.low_disk(default_store(stored_at(self.used.path)).root)) and context.log:
            context.log.warning(self.used.meant(problem))
        if not (instance and run):
            _ = self.recipe
            return
        orphaned_runs.report(instance)
        orphaned_runs.claim(instance, run, self.used)
        self._executes_one_step = orphaned_runs.executes_one_step(instance, run)
        try:
            instance.add_run_tags(run.run_id, self._tags())
            if trains(run):
                self._check_training(instance, run)
        except PipelineError as error:
            if context.log and not isinstance(error, RecipeError):  # of which the terminal hears otherwise
                context.log.error(str(error))
            instance.add_run_tags(run.run_id, {orphaned_runs.MAX_RETRIES_TAG: "0"})
            runs.restore_unreached_checks(instance, run.run_id)
            raise SettingsError(str(error)) from None  # which the page of the run shows as it is
        if context.log:
            self._announce(context.log, instance, run)
        self.hold_data()
        self._take_over(instance, run.tags.get(PARENT_TAG))

    def _check_training(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
        """Checks what a training needs besides data, before data is made. Raises PipelineError."""
        initial_weights.check(self.store, self.recipe, retrains(run))
        self._check_bases(instance, run)
        if self.store.files.shared:
            self._check_nodes = cache(
                partial(Launcher(self.recipe.launch, None).check_nodes, self.store.root)
            )

    def _check_bases(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
        """Checks that the models are there which the sections of `post_training` go on with. Another run may
        be training them.
        """
        trained = self._trained(instance, run)
        under_way = [self._trained(instance, other) for other in orphaned_runs.under_way(instance)]
        for section in trained - {""}:
            base = self.of(section).recipe.base
            if base and base.section not in trained.union(*under_way):
                try:
                    since_trained.model(store_of(base), base)
                except StoreError as error:
                    job = self.used.name(JOBS.get(base.section, "pretrain"))
                    why = error.what if isinstance(error, NotMadeError) else error
                    raise PipelineError(
                        f"{section} starts from a model that is missing ({why}): run the job {job} first"
                    ) from None

    def _trained(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> set[str]:
        """The sections whose models a run trains, with "" for the model of the recipe."""
        steps = planned_steps(instance, run)
        return {
            section
            for section in ("", *self.recipe.post_training.sections)
            if "__".join(self.used.asset(keys.PRETRAINED_MODEL, section).path) in steps
        }

    def _announce(self, log: dg.DagsterLogManager, instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
        """Says in the log that the run begins, and what a training of it will have trouble with."""
        log.info(f"run {run.run_id[:8]} of {self.called} begins")
        terminal.otherwise(f"run {run.run_id[:8]} of {self.called}")
        if run.execution_plan_snapshot_id:
            terminal.stages(lambda: len(planned_steps(instance, run)))
        if not trains(run):
            return
        if warning := runs.waits_for_pool(instance, self.used.pool, run.run_id):
            log.warning(warning)
        sinks = self.recipe.training.sinks
        for problem in (*missing_trackers(sinks), *trackers_without_place(sinks)):
            log.warning(f"{problem}: the training will refuse to begin")
        if self.recipe.training.model.attention_sinks:
            log.warning(READ_HERE_ONLY)

    def _take_over(self, instance: dg.DagsterInstance, parent: str | None) -> None:
        """A run that is started again leaves out the steps that succeeded. It goes on with what those read
        from the sources, whatever other runs have read since; everything else follows from that.
        """
        given = {
            self.used.asset(key, section): (self.of(section).store, key)
            for section in ("", *self.recipe.post_training.sections)
            for key in (*map(keys.raw, self.of(section).recipe.corpus_names), keys.TOKENIZER)
        }
        while parent and (run := instance.get_run_by_id(parent)):
            for entry in instance.all_logs(parent, dg.DagsterEventType.ASSET_MATERIALIZATION):
                made = entry.asset_materialization
                if not made or made.asset_key not in given:
                    continue
                store, key = given.pop(made.asset_key)
                with suppress(PipelineError):  # it was removed since, and is read again
                    store.go_on_with(store.open(key, str(made.metadata["fingerprint"].value)))
            parent = run.tags.get(PARENT_TAG)

    @cached_property
    def _differences(self) -> dict[str, str]:
        """The settings of this run that differ from the recipe or the variant, by path."""
        now, usual = self.recipe.model_dump(mode="json"), self.unchanged_recipe.model_dump(mode="json")
        changes = {name: value for name, value in self.changes.items() if now.get(name) != usual.get(name)}
        return differences(changes, usual)

    @property
    def called(self) -> str:
        """The name of this run, or else its recipe, its variant and the first settings that it was given."""
        given = [f"{path.rpartition('.')[2]} {value}" for path, value in self._differences.items()]
        variant = [] if self._variant == BASE else [self._variant]
        return self.name or " ".join([self.recipe.name, *variant, *given[:SHOWN_SETTINGS]])

    def _tags(self) -> dict[str, str]:
        """Name, notes and the settings that differ from the recipe."""
        named = {"name": self.name, "notes": self.notes}
        return {
            **self.used.tags,
            **{name: text for name, text in named.items() if text},
            **{path: text[:TAG_LENGTH] for path, text in self._differences.items()},
        }

    def hold_data(self) -> None:
        """Lets nothing be removed from the store from now on."""
        self._in_progress.enter_context(self.store.in_progress())

    def release_data(self) -> None:
        """Lets `gc` remove from now on what no lineage or recipe names, although the run still trains."""
        self._in_progress.close()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Ends the workers, lets `gc` remove versions, keeps results of checks the run did not reach."""
        terminal.otherwise("ending the run")
        self.release_data()
        if context.instance and context.run and not self._executes_one_step:
            runs.restore_unreached_checks(context.instance, context.run.run_id)
        if "engine" in self.__dict__:  # missing if the recipe is invalid
            self.engine.close()


def with_values_of(recipe: Recipe, used: UsedRecipe) -> PipelineResources:
    """The resources that the Launchpad opens with: the recipe's values of the knobs, and no name and notes.
    Their class knows the recipe, because Dagster makes each instance from the settings alone.
    """
    settings = recipe.model_dump(mode="json")
    given: dict[str, Any] = {name: knobs(**values(knobs, settings[name])) for name, knobs in KNOBS.items()}
    # empty, so that they are there to be filled in
    name, doc = PipelineResources.__name__, PipelineResources.__doc__
    kind = create_model(name, __base__=PipelineResources, __module__=__name__, __doc__=doc)
    kind.used = used
    return kind(**given, name="", notes="")


def checked(workshop: PipelineResources) -> dg.ResourceDefinition:
    """Refuses settings before there is a run of them, after which all of its assets would count as failed."""
    definition = workshop.get_resource_definition()
    return definition.configured(partial(_accepted, type(workshop)), definition.config_schema)


def _accepted(kind: type[PipelineResources], config: dict[str, Any]) -> dict[str, Any]:
    """Raises SettingsError for settings that nothing accepts, a recipe of which something, such as a variant,
    was broken since it was read, and an unwritable store.
    """
    refused = []
    try:
        check_place(default_store(stored_at(kind.used.path)).root)
        for variant in variants.load_all(kind.used.path):
            workshop = kind(**config)
            workshop._variant = variant
            try:
                _ = workshop.recipe
                return config
            except SettingsError as error:
                refused.append(error)
    except PipelineError as error:
        raise SettingsError(str(error)) from None
    raise refused[0]
