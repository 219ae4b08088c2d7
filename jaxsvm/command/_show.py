"""`jaxsvm show`: what is in a saved model."""

from pathlib import Path

from .._parameters import listed_parameters
from ._cells import shown
from ._model import SavedModel, load, relevant_inputs


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "show", help="what is in a model", description="Print what a model file holds."
    )
    parser.add_argument("model", type=Path, help="a file that `jaxsvm tune` wrote")
    parser.set_defaults(run=lambda chosen: print(described(load(chosen.model))))


def described(model: SavedModel) -> str:
    """The model in words: what it predicts, what was measured, what matters, its hyperparameters."""
    estimator = model.estimator
    kind = "classification" if model.is_classifier else "regression"
    lines = [f"{type(estimator).__name__}: {kind} of {model.target!r}"]
    if model.is_classifier:
        lines.append(
            "classes          " + ", ".join(shown(str(label)) for label in estimator.classes_)
        )
    lines += [f"{name:16s} {text}" for name, text in model.measured.items()]
    lines += relevance_lines(model)
    found = estimator.model_
    machines = found if isinstance(found, list) else [found]
    for place, machine in enumerate(machines):
        of = f" of class {shown(str(estimator.classes_[place]))}" if len(machines) > 1 else ""
        lines.append(f"hyperparameters{of} (inputs have mean 0 and variance 1):")
        lines += [f"  {line}" for line in listed_parameters(machine)]
    return "\n".join(lines)


def relevance_lines(model: SavedModel, most: int = 10) -> list[str]:
    """The most relevant inputs with bars."""
    found = relevant_inputs(model)
    if not found or all(relevance == 1 for _, relevance in found):
        return (
            ["relevance        the same for all inputs: one lengthscale did best"] if found else []
        )
    found = [(shown(name), relevance) for name, relevance in found]
    width = max(len(name) for name, _ in found[:most])
    lines = [f"most relevant of {len(found)} inputs (1 / lengthscale^2, largest = 1):"]
    for name, relevance in found[:most]:
        bar = "#" * max(round(30 * relevance), 1)
        lines.append(f"  {name:{width}s}  {relevance:8.2g}  {bar}")
    return lines
