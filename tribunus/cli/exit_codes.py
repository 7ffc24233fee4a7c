"""docs/exit-codes.md out of the error tree: ``python -m tribunus.cli.exit_codes > docs/exit-codes.md``.

Imported by: tests.  Imports: errors.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from tribunus.errors import TribunusError, all_leaves

_HEAD = """# Exit codes: what does it mean when a command ends with this number?

```
  command ──> 0        the answer is yes
          ├─> 1        the answer is no
          ├─> 2        stopped; the same command resumes
          ├─> 3 4 5    could not judge, was called wrongly, had nothing to judge
          └─> 10 ...   refused, and why
```

```sh
tribunus verify model.cpu.tci; echo "exit code $?"
```

One table for `pytest certify/` and every `tribunus` command; 0 to 5 keep pytest's meaning. A refusal is one line
`refused: E_NAME: detail` with a remedy below it, on standard error; with `--json` it is also a document of schema
`tribunus.refusal/1` on standard output. The `E_` names are stable; programs should compare them, or the code.
The first failure wins, in the order container, encoding, structure, signature, trust, content digests, plan.

| code | meaning | names |
|---|---|---|
| 0 | done; the answer is yes (admitted and image written, verified, fits, equal) | |
"""

_MIDDLE = """
A reader that closes the pipe early (`tribunus inspect x.tci | head -1`) ends a command with 50 and no message.
SIGTERM, as from `timeout` or a service manager, ends a certification as Ctrl-C does: with 2 and a report of what was
judged. What a killed one leaves in the folder for temporary files, the next one removes.

This page is made by `python -m tribunus.cli.exit_codes`.

## What to do about each
"""


def page() -> str:
    """The whole page."""
    # rooms may add leaves below the tree; which of them are loaded must not change the page
    leaves = [leaf for leaf in all_leaves() if leaf.__module__ == TribunusError.__module__]
    rows = [_HEAD]
    for code in sorted({leaf.exit_code for leaf in leaves}):
        family = [leaf for leaf in leaves if leaf.exit_code == code]
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(leaf.name for leaf in family))
        rows.append(f"| {code} | {family[-1].family} | {names} |\n")
    rows.append(_MIDDLE)
    for code in sorted({leaf.exit_code for leaf in leaves}):
        family = [leaf for leaf in leaves if leaf.exit_code == code]
        rows.append(f"\n### {code}: {family[-1].family}\n\n")
        rows += [line + "\n" for line in _remedies(family)]
    return "".join(rows)


def _remedies(family: Sequence[type[TribunusError]]) -> list[str]:
    by_remedy: dict[str, list[str]] = {}
    for leaf in family:
        names = by_remedy.setdefault(leaf.default_remedy, [])
        if leaf.name not in names:
            names.append(leaf.name)
    lines: list[str] = []
    for remedy, names in by_remedy.items():
        text = f"- {', '.join(f'`{name}`' for name in names)}: {remedy}"
        lines += textwrap.wrap(text, 118, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return lines


if __name__ == "__main__":
    sys.stdout.write(page())
