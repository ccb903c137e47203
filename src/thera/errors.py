"""The errors that Thera raises. Every message says what was given, what was expected and what to do."""


class TheraError(Exception):
    """Base of every error that Thera raises on purpose. Its message is written for the user.

    `advice`: what to do about it with options of the program or of Python, which follows after a colon.
    `problem` is the message without it, for pages, which have no such options.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}: {advice}." if advice else message)
        self.problem = f"{message}." if advice else message


class InvalidInput(TheraError, ValueError):
    """An argument or an image that Thera cannot work with: a scale of zero, a NaN, a wrong shape."""


class ModelError(TheraError):
    """A model that is unknown, damaged, or not what its file claims to be."""


class UnsafeCheckpoint(ModelError):
    """A pickled checkpoint that asks for more than NumPy arrays and plain containers. None of it was run."""


class FieldFileError(TheraError):
    """A saved heat field that is damaged or is not one."""


class ImageFileError(TheraError):
    """An image file that cannot be read, or an output that cannot be written."""


class UnreadableImage(ImageFileError):
    """A file that the picture reader cannot decode, though another reader may."""


class ClusterError(TheraError):
    """A Dask scheduler that does not answer, or a worker that fails."""


class MissingDependency(TheraError, ImportError):
    """A missing optional package. The message names the extra to install."""


class UnknownImage(TheraError):
    """An identifier of no image on the server."""


class ServerBusy(TheraError):
    """The server is working on as many requests as it accepts."""
