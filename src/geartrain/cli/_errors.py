"""What can be wrong about a command line."""

from __future__ import annotations

from dataclasses import dataclass

from geartrain.errors import ResourceError, UsageError


@dataclass(eq=False)
class OptionInvalid(UsageError):
    """An option, or a combination of options, cannot be used."""

    option: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}"


@dataclass(eq=False)
class StoreNotFound(UsageError):
    """No store is where the command looked."""

    looked: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"no store: looked for {self.looked}; `geartrain run` makes one, --store PATH names another"
        return f"{text} (used lately: {', '.join(self.known)})" if self.known else text


@dataclass(eq=False)
class RunUnknown(UsageError):
    """No run of that id is in the stores that were looked through."""

    run_id: str
    stores: tuple[str, ...]

    def __str__(self) -> str:
        where = ", ".join(self.stores)
        return f"run {self.run_id!r}: not found in {where}; `geartrain list` shows what is in a store"


@dataclass(eq=False)
class RunAmbiguous(UsageError):
    """The beginning of an id fits several runs."""

    run_id: str
    fitting: tuple[str, ...]

    def __str__(self) -> str:
        return f"run {self.run_id!r}: fits {', '.join(self.fitting)}; give more of the id, or --store"


@dataclass(eq=False)
class AgentUnknown(UsageError):
    """The run's agent, or the one asked for, is not among those that this command knows."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        known = ", ".join(map(repr, self.known))
        return f"agent {self.name!r}: not known here (known: {known}); name your agents with --app MODULE:ATTR"


@dataclass(eq=False)
class AppUnusable(UsageError):
    """What --app names cannot be imported, or holds no agents."""

    app: str
    reason: str

    def __str__(self) -> str:
        return f"app {self.app!r}: {self.reason}"


@dataclass(eq=False)
class CallNotChosen(UsageError):
    """A command is about one call of the run, and it is not clear which."""

    run_id: str
    wanted: str
    open_calls: tuple[str, ...]

    def __str__(self) -> str:
        if not self.open_calls:
            return f"run {self.run_id!r}: {self.wanted}; no call of it is"
        return f"run {self.run_id!r}: {self.wanted}; say which: {', '.join(self.open_calls)}"


@dataclass(eq=False)
class CallNotWaiting(UsageError):
    """A command is about a call that does not wait for it."""

    run_id: str
    call_id: str
    waits: str
    open_calls: tuple[str, ...]

    def __str__(self) -> str:
        those = f"these are: {', '.join(self.open_calls)}" if self.open_calls else "no call of it is"
        return f"run {self.run_id!r}: call {self.call_id!r} is not {self.waits}; {those}"


@dataclass(eq=False)
class RunHasEnded(UsageError):
    """Nothing can be done to a run that has ended."""

    run_id: str
    state: str

    def __str__(self) -> str:
        return f"run {self.run_id} has ended: {self.state}"


@dataclass(eq=False)
class OutputFailed(ResourceError):
    """What a command has to say could not be written. What it did is done."""

    reason: str

    def __str__(self) -> str:
        return f"standard output: {self.reason}; what the command did is stored, `geartrain show` tells it"
