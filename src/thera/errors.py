"""What can go wrong, as a small tree. Every message says what was given, what was expected and what to do."""


class TheraError(Exception):
    """Base of every error Thera raises on purpose. Its text is one sentence for the user."""


class InvalidInput(TheraError, ValueError):
    """An argument or an image that Thera cannot work with: a scale of zero, a NaN, a wrong shape."""


class ModelError(TheraError):
    """A model that is unknown, damaged, or not what its file claims to be."""


class UnsafeCheckpoint(ModelError):
    """A pickled checkpoint that asks for more than NumPy arrays and plain containers. Nothing of it ran."""


class FieldFileError(TheraError):
    """A saved heat field that is damaged or is not one."""


class ImageFileError(TheraError):
    """An image file that cannot be read, or an output that cannot be written."""


class ClusterError(TheraError):
    """A Dask scheduler that does not answer, or a worker that cannot do its part."""


class MissingDependency(TheraError, ImportError):
    """An optional part is needed; the message names the extra that brings it."""


class UnknownImage(TheraError):
    """An identifier under which a server has no image."""


class ServerBusy(TheraError):
    """A server has as much to do as it takes on at once."""
