"""Whatever can go wrong as a TribunusError: one message, one exit code, no traceback.

Imported by: session, walking, finishing.  Imports: errors, ledger.store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from tribunus.errors import EnvironmentFault, InternalError, Interrupted, TribunusError
from tribunus.ledger.store import ledger_fault

DEBUG = "TRIBUNUS_DEBUG"
LONGEST = 400

T = TypeVar("T")


def guarded(work: Callable[[], T]) -> T:
    """The result of ``work``.  Raises TribunusError; pytest's own outcomes, which are no Exception, pass through."""
    try:
        return work()
    except TribunusError:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted") from error
    except OSError as error:
        raise EnvironmentFault(_sentence(error)) from error
    except MemoryError as error:
        raise EnvironmentFault("out of memory", remedy="free memory or raise the limit") from error
    except sqlite3.Error as error:
        raise ledger_fault(error, "the ledger") from error
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
        remedy = f"{DEBUG}=1 with the same command shows the traceback; report it together with the command"
        raise InternalError(text, remedy=remedy) from error


def _sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
