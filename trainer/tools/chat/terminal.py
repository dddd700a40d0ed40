"""`python -m trainer chat`: a conversation in the terminal."""

import argparse
import re
import sys
from typing import TextIO

from trainer.config import SamplesConfig, samples_of
from trainer.config.base import whole_text
from trainer.hf import load_model
from trainer.run.evaluation.conversation import ChatFormat, Conversation
from trainer.system import terminal
from trainer.system.errors import TrainerError
from trainer.system.run_history import MODEL_NAMES
from trainer.tools.drawing import add_sampling
from trainer.tools.find_model import model_named

HELP = "Write a line and press Enter. /reset starts over, /help shows this, /quit or Ctrl-D ends."
COMMAND = re.compile(r"/\w+")  # as it stands alone on a line; a path has a second slash or more words
PORT, LAST_PORT = 7860, 65_535
ANSWER_TOKENS = 256  # at most, unless told otherwise


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer chat", description="Talk to a tuned model.")
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL_NAMES)
    add("--system", metavar="TEXT", default="", help="instructions that the conversation begins with")
    add_sampling(parser, "answer", ANSWER_TOKENS, SamplesConfig().temperature)
    add("--page", action="store_true", help="chat on a page in the browser of this machine instead")
    add("--port", metavar="N", type=int, help=f"port of the page; default: {PORT}")
    options = parser.parse_args(arguments)
    try:
        whole_text(options.system)
    except ValueError as error:
        raise TrainerError(f"--system: {error}") from None
    port = PORT if options.port is None else options.port
    if not 0 <= port <= LAST_PORT:
        raise TrainerError(f"--port {port}: must be from 0 to {LAST_PORT}")
    if options.port is not None and not options.page:
        raise TrainerError(f"--port {port}: a chat in the terminal has no port: add --page, or leave it out")
    settings = {name: getattr(options, name) for name in ("max_new_tokens", "temperature", "top_k")}
    with terminal.doing(f"loading {options.model}"):
        samples, directory = samples_of(settings), model_named(options.model)
        model, form = load_model(directory), ChatFormat.of(directory)
        conversation = Conversation(model, form, samples, options.system)
    if options.page:
        from trainer.tools.chat.page import serve

        serve(conversation, options.model, port)
    else:
        talk(conversation, sys.stdin, sys.stdout)
    return 0


def talk(conversation: Conversation, lines: TextIO, out: TextIO) -> None:
    """Answers each line until there is none."""
    print(HELP, file=out)
    while True:
        print("\n> ", end="", file=out, flush=True)
        line = lines.readline()
        match line.strip():
            case "/quit" | "/exit" | "":
                if line.strip() or not line:
                    print(file=out)
                    return
            case "/reset":
                conversation.reset()
            case "/help":
                print(HELP, file=out)
            case command if COMMAND.fullmatch(command):
                print(f"{command} is not a command. {HELP}", file=out)
            case said:
                _write(conversation, said, out)


def _write(conversation: Conversation, said: str, out: TextIO) -> None:
    """Ctrl-C ends the answer, not the conversation."""
    try:
        for piece in conversation.answer(said):
            print(piece, end="", file=out, flush=True)
    except KeyboardInterrupt:
        print(" ...", end="", file=out)
    print(file=out)
