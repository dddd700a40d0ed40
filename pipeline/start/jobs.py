"""Runs the jobs of a recipe that `start` wrote, so that all of it ends at the deadline."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.post_training import SFT
from pipeline.start.choose import PROGRAMS_AROUND_TUNING, Chosen, choose
from pipeline.start.folder.look import NothingReadableError
from pipeline.start.following import Following
from pipeline.start.horizon import AIM, FINISHING, RESTARTING, Deadline, Standing
from pipeline.start.recipe_file import is_ours, recipe_name, write
from pipeline.start.sizes import FEWEST_ENTRIES, Size, others, ranked
from pipeline.start.speed import Speed
from pipeline.start.stored import held_out_score, learned, read_conversations, supported_entries, too_little
from pipeline.steps.corpus.ingest import CONTINUES_VARIABLE
from pipeline.store.errors import PipelineError
from trainer.system import terminal
from trainer.system.clock import since_boot
from trainer.system.signals import stop_with_parent

LOOKS_EVERY_SECONDS = 0.5
MOST_CHANGES = 3  # of the choices for a training: each stops a job and begins another
# If other text is left than was expected, and not about as much, the choices are made anew where a training
# would read it so many times as often as is worth it, or could be so many times as long.
ALIKE, TOO_OFTEN, MUCH_LONGER = 0.9, 1.5, 1.1


class FailedJobError(PipelineError):
    """A job did not end well. Its own messages, above this one, say what went wrong."""


@dataclass
class Jobs:
    """The jobs of the recipe at `path`, which says what was `chosen`, by the `speed` of this machine.
    Trainings are kept in `runs`.
    """

    path: Path
    chosen: Chosen
    deadline: Deadline
    runs: Path
    speed: Speed
    changes: int = 0
    variables: dict[str, str] = field(default_factory=dict)  # of the environment of the next job
    anew: Chosen | None = None  # what takes the place of the choices, once a job has stopped

    def run(self) -> None:
        """Raises FailedJobError, and NothingReadableError if the data stages leave too little, or if the
        conversations cannot be learned, which is told before anything is trained.
        """
        self.speed.end()
        if self.chosen.conversations:
            read_conversations(load_recipe(self.path))
        following = self._try_others(self._pretrain())
        if self.chosen.conversations:
            if (each := following.seconds_a_token) and is_ours(self.path):
                around = PROGRAMS_AROUND_TUNING * following.program_seconds
                seconds = self.deadline.left - (1 - AIM) * self.deadline.seconds - around
                self.chosen = replace(self.chosen, tuning=self.chosen.tuning.fitting(seconds, 1 / each))
                write(self.path, self.chosen)
            self._execute(SFT, lambda: False, partial(self._show_end, following, 1.0))

    def _pretrain(self) -> Following:
        """Pretrains, and while it does changes the horizon if it would miss the deadline by much."""
        while True:
            chosen = self.chosen
            name, tokens = recipe_name(chosen), chosen.horizon.tokens
            following = Following(self.runs, name, tokens, chosen.program_seconds)
            tells = partial(self._show_end, following, FINISHING)
            try:
                if not self._execute("pretrain", partial(self._must_stop, following), tells):
                    return following
            except FailedJobError:
                if not self._halved_vocabulary():
                    raise
            else:
                self.changes += 1
                if self.anew is None:
                    self._change(following)
                else:
                    self.chosen, self.anew = self.anew, None
                    write(self.path, self.chosen)

    def _try_others(self, following: Following) -> Following:
        """Trains other sizes in the time that little text leaves, and keeps the best by the held-out text,
        since which size suits so little text only a training tells. Returns what followed that of the best.
        """
        first = self.chosen.length
        if first.limit == "time" or not is_ours(self.path) or (score := held_out_score(self.path)) is None:
            return following
        trained, tried = {first.size: (self.chosen, following)}, {first.size: score}
        best, seen = first.size, {first.size}
        while size := next((one for one in others(best) if one not in seen), None):
            seen.add(size)
            if (other := self._other(size, trained[first.size])) is None:
                continue
            left = f"{self.deadline.left / 60:,.1f} minutes are left"
            print(f"\n{left}: a model of {size.words} is trained as well. The best is kept.", flush=True)
            self.chosen, self.changes = replace(other, tried=dict(tried)), 0
            write(self.path, self.chosen)
            try:
                following = self._pretrain()
            except FailedJobError as error:
                print(f"\n{error}. A model that was trained before is kept.", file=sys.stderr, flush=True)
                continue
            if is_ours(self.path) and (score := held_out_score(self.path)) is not None:
                trained[size], tried[size] = (self.chosen, following), score
            best = min(tried, key=tried.__getitem__)
        last = self.chosen
        if last.tried and is_ours(self.path):
            print(f"\nOn the held-out text, bits per byte are {ranked(tried)}.", flush=True)
            self.chosen, following = trained[best]
            self.chosen = replace(self.chosen, tried=tried)
            write(self.path, self.chosen)
            if last.length.size != best:
                self._execute("pretrain", lambda: False, lambda _: None)  # which finds all of it made
        return following

    def _other(self, size: Size, first: tuple[Chosen, Following]) -> Chosen | None:
        """The choices for another size, if all that it should read fits into the time that is left."""
        chosen, following = first
        vocab_size = chosen.length.vocab_size
        if not is_ours(self.path) or not (left := learned(load_recipe(self.path), vocab_size)):
            return None
        other = choose(chosen.folder, chosen.wishes, self.speed, self.deadline.spent, left, size)
        if other.length.limit == "time":
            return None
        seconds = other.horizon.tokens / other.tokens_per_second
        if each := following.seconds_a_token:
            seconds *= max(1.0, each * chosen.tokens_per_second)  # on a machine that has become slower
        seconds += other.budget.around + other.budget.tuning + RESTARTING * following.program_seconds
        if seconds > AIM * self.deadline.seconds:
            return None
        return replace(
            other,
            length=replace(other.length, vocab_size=vocab_size),
            validation_fraction=chosen.validation_fraction,
        )

    def _halved_vocabulary(self) -> bool:
        """Halves the vocabulary until the text supports it, if a job has failed for want of that, and returns
        whether it did. Text of few different words supports few entries, which only the training of a
        tokenizer tells.
        """
        supported = supported_entries(load_recipe(self.path)) if is_ours(self.path) else None
        if supported is None or supported < FEWEST_ENTRIES:
            return False
        entries = self.chosen.length.vocab_size
        while entries > supported:
            entries = max(FEWEST_ENTRIES, entries // 2)
        self.chosen = replace(self.chosen, length=replace(self.chosen.length, vocab_size=entries))
        write(self.path, self.chosen)
        print(
            f"\nThe text has few different words, so the vocabulary is reduced to {entries:,} entries.",
            flush=True,
        )
        return True

    def _execute(
        self, job: str, stops: Callable[[], bool], follows: Callable[[terminal.Activity], None]
    ) -> bool:
        try:
            command = [sys.executable, "-m", "pipeline.dagster_command", "job", "execute", "-j", job]
            return execute(command, stops, follows, self.variables)
        except FailedJobError as error:
            recipe, readings, what = load_recipe(self.path), self.chosen.corpora, "no model can be made"
            if job == SFT:
                recipe, readings = recipe.tuned(SFT), self.chosen.conversations
                what = "the model is finished, but cannot be taught to answer"
            if said := too_little([reading.corpus for reading in readings], recipe):
                raise NothingReadableError(f"{self.chosen.folder.path}: {what}: {said}") from error
            raise
        finally:
            # Files that others write or delete meanwhile would else throw away a training, or end it.
            self.variables = {CONTINUES_VARIABLE: "1"}

    def _must_stop(self, following: Following) -> bool:
        """Whether the choices must be changed: once for the text that is left, and later for the deadline."""
        had_begun = following.run is not None
        following.look()
        if self.changes == MOST_CHANGES or not is_ours(self.path):
            return False
        # Later, less time is left, and what has been trained would be thrown away.
        if not (had_begun or self.changes) and following.run is not None:
            self.anew = self._for_what_is_left()
            return self.anew is not None
        standing = self._standing(following)
        if standing is None:
            return False
        if misses := standing.must_change(self.chosen.horizon):
            said = (
                "\nThe training would not end at the deadline: its run is stopped, which Dagster "
                "calls a failure, and resumes with another length."
            )
            print(said, file=sys.stderr, flush=True)  # where the line is
        return misses

    def _for_what_is_left(self) -> Chosen | None:
        """Other choices, if those that were made do not suit the text that the data stages have left. Copies,
        which may be most of a folder, are found by these stages alone, and so are the bytes of a token.
        """
        chosen = self.chosen
        vocab_size, expected = chosen.length.vocab_size, chosen.length.unique
        left = learned(load_recipe(self.path), vocab_size)
        if not left or ALIKE < left.tokens(vocab_size) / expected < 1 / ALIKE:
            return None
        anew = choose(chosen.folder, chosen.wishes, self.speed, self.deadline.spent, left)
        too_often = chosen.horizon.tokens > TOO_OFTEN * anew.length.most
        longer = anew.horizon.tokens > MUCH_LONGER * chosen.horizon.tokens and chosen.length.limit == "text"
        by_heart = anew.length.weight_decay and not chosen.length.weight_decay
        if anew.length.size == chosen.length.size and not (too_often or longer or by_heart):
            # However fast the machine turns out to be, the training becomes no longer than suits this text.
            horizon = replace(chosen.horizon, most=anew.horizon.most)
            self.chosen = replace(chosen, horizon=horizon)
            return None
        text = (
            f"{left.text_bytes / 1e6:,.2g} MB of text with {left.tokens(vocab_size):,} tokens, "
            f"where {expected:,} were expected"
        )
        print(
            f"\nThere are {text}: the run is stopped, which Dagster calls a failure, and a model of "
            f"{anew.length.parameters / 1e6:,.1f} M parameters is trained over {anew.horizon.tokens:,} "
            "tokens.",
            file=sys.stderr,
            flush=True,
        )
        return replace(
            anew, validation_fraction=chosen.validation_fraction, changed=f"chosen anew for {text}"
        )

    def _show_end(self, following: Following, programs: float, shown: terminal.Activity) -> None:
        """Tells the line when all will end, as soon as a training says how long it still takes."""
        if shown.what.endswith("training") and shown.seconds_left is not None:
            after = programs * following.program_seconds
            terminal.whole(self.deadline.began, since_boot() + shown.seconds_left + after)

    def _standing(self, following: Following) -> Standing | None:
        left, programs = self.deadline.left, FINISHING
        if self.chosen.conversations and (each := following.seconds_a_token):
            left -= self.chosen.tuning.planned(self.deadline.seconds, 1 / each).seconds(1 / each)
            programs += PROGRAMS_AROUND_TUNING
        return following.standing(left=left, given=self.deadline.seconds, programs=programs)

    def _change(self, following: Following) -> None:
        standing, before = self._standing(following), self.chosen.horizon.tokens
        assert standing
        horizon = replace(standing, tokens=following.saved_tokens).fitting(self.chosen.horizon)
        why = (
            f"{horizon.changed_from(before)}: {1 / standing.seconds_a_token:,.0f} tokens/s, where "
            f"{self.chosen.tokens_per_second:,.0f} were expected"
        )
        if following.paused:
            why += f", after nothing ran for {following.paused / 60:,.1f} minutes"
        self.chosen = self.chosen.with_horizon(horizon, why)
        write(self.path, self.chosen)
        print(f"\nThe training is {why}. It continues, to {horizon.tokens:,} tokens.", flush=True)


def execute(
    command: list[str],
    stops: Callable[[], bool] = lambda: False,
    follows: Callable[[terminal.Activity], None] = lambda _: None,
    variables: Mapping[str, str] = {},
) -> bool:
    """Runs a command to its end, also when this one is told to stop: then the job saves and ends. Returns
    whether `stops` ended it. `follows` is told of what the command does. The command has these `variables`
    beside the environment of this program. Raises FailedJobError.
    """
    called = command[-1]
    relay, to_relay = os.pipe()
    os.set_blocking(relay, False)
    shows = terminal.is_interactive()
    relays = {terminal.RELAY_VARIABLE: str(to_relay)} if shows else {}
    with terminal.doing(f"{called}: starting") as shown:
        shown.said = shown.what  # without a terminal the command says enough
        # In a terminal, what the command prints appears above the line, as if on standard error.
        output = terminal.STDERR if shows and os.isatty(terminal.STDOUT) else None
        process = subprocess.Popen(
            command,
            stdout=output,
            env={**os.environ, **variables, **relays},
            pass_fds=[to_relay],
            preexec_fn=partial(stop_with_parent, signal.SIGINT),
        )
        os.close(to_relay)
        stopped = False
        try:
            while process.poll() is None:
                if relayed := _last_line(relay):
                    shown.take(relayed, called)
                    follows(shown)
                if not stopped and stops():
                    stopped = True
                    process.send_signal(signal.SIGINT)
                time.sleep(LOOKS_EVERY_SECONDS)
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            # after what Dagster says, which names a failed run
            print("stopped: the same command resumes", file=sys.stderr, flush=True)
            raise
        finally:
            os.close(relay)
    status = process.returncode
    if status and not stopped:
        raise FailedJobError(
            f"dagster job execute -j {called} ended with status {status}: the line with FAILED above says "
            "why; the same command resumes"
        )
    return bool(status)


def _last_line(pipe: int) -> str:
    """The last line that came through a pipe since the last call; empty if none came."""
    with suppress(BlockingIOError):
        if lines := os.read(pipe, 1 << 16).splitlines():
            return lines[-1].decode()
    return ""
