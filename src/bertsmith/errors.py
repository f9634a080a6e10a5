"""What can go wrong for a user, one small tree.

BertsmithError            anything below; its text is one sentence for a person, with what to do
├── TrainingError         a run that cannot go on: the disk is too small
│   └── DivergenceError   its loss or gradient is not finite
├── SaidByMainError       one of many processes ends because the main one does, which says why
└── InputError            what was given is wrong: a file, a value, a text (exit code 2)
    ├── ConfigError       a model configuration that cannot be; names the field
    ├── WeightsError      a weight file that is broken, hostile or does not fit the configuration
    ├── TokenizerError    a vocabulary that is broken, or text that no tokenizer can read
    ├── CorpusError       raw text that cannot be read; names file and line
    ├── ShardError        a data set that is broken, incomplete, or not the one that was meant
    ├── DataError         a file of a task that cannot be read; names file and line
    └── ModelNotFoundError  a model name or folder that leads nowhere
"""

__all__ = [
    "BertsmithError",
    "ConfigError",
    "CorpusError",
    "DataError",
    "DivergenceError",
    "InputError",
    "ModelNotFoundError",
    "SaidByMainError",
    "ShardError",
    "TokenizerError",
    "TrainingError",
    "WeightsError",
]


class BertsmithError(Exception):
    """The root: catch this to catch every error that Bertsmith raises on purpose."""


class TrainingError(BertsmithError):
    """A training run cannot begin or go on; the message says why and what to do."""


class DivergenceError(TrainingError):
    """The loss or its gradient is no number any more; the same settings would come to the same end again."""


class SaidByMainError(BertsmithError):
    """The main process cannot go on and says why; the others have nothing to add."""


class InputError(BertsmithError):
    """What the user gave is wrong; the message names it and says what to do."""


class ConfigError(InputError):
    """A model configuration holds an impossible value; the message names the field."""


class WeightsError(InputError):
    """A weight file is broken, hostile, or does not fit the model it is for."""


class TokenizerError(InputError):
    """A vocabulary cannot be used, or a text cannot be read by any tokenizer."""


class CorpusError(InputError):
    """Raw text cannot be read; the message names the file and the place in it."""


class ShardError(InputError):
    """A data set is broken, incomplete, or not the one that was meant."""


class DataError(InputError):
    """A task's file cannot be read, or says what cannot be; the message names the file and the line."""


class ModelNotFoundError(InputError):
    """No folder, local name or hub entry answers to this model's name."""
