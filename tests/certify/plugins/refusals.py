"""Runs many short ``tribunus certify`` sessions: loads everything once, forks for each.

python refusals.py FOLDER      FOLDER/words.json: {NAME: words}  ->  FOLDER/NAME.out, FOLDER/NAME.err, FOLDER/codes.json
"""

import json
import os
import sys
from pathlib import Path

import onnx  # noqa: F401  what the sessions need is loaded before the fork
import tribunus_certify.session  # noqa: F401

from tribunus.cli.tool import run_tool

AT_ONCE = 2


def main(folder: Path) -> None:
    codes: dict[str, int] = {}
    running: dict[int, str] = {}

    def wait() -> None:
        pid, status = os.wait()
        codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)

    for name, words in json.loads((folder / "words.json").read_text()).items():
        if len(running) == AT_ONCE:
            wait()
        child = os.fork()
        if child == 0:
            for number, kind in ((1, "out"), (2, "err")):
                file = os.open(folder / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(file, number)
            sys.exit(run_tool(["certify", *words]))
        running[child] = name
    while running:
        wait()
    (folder / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
