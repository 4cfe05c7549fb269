"""Third part of the worker program: where the standard library alone would let a session down."""


class LateFinder:
    """Asked when every other finder has failed: looks again for a module that was written a moment ago.

    Finders remember a folder's content by its time of change, and a file can be written within the same tick.
    """

    def find_spec(self, name, path=None, target=None):
        try:
            for folder in sys.path if path is None else path:
                if path is None and folder.startswith((sys.prefix, sys.base_prefix)):
                    continue  # the image's own: large, and read-only
                folder = folder or getcwd()
                finder = sys.path_importer_cache.get(folder)
                if hasattr(finder, "invalidate_caches"):
                    finder.invalidate_caches()
                elif finder is None:
                    # It was no folder when it was looked at: pip may have made it since.
                    sys.path_importer_cache.pop(folder, None)
            return PathFinder.find_spec(name, path, target)
        except (AttributeError, OSError, TypeError):  # an odd path, or a working directory that is gone
            return None


def getfile_for(sources):
    """inspect.getfile, with the classes that calls define: a class has no file but its module's."""
    original = inspect.getfile

    def getfile(object):
        try:
            return original(object)
        except (OSError, TypeError):
            name = None
            if isinstance(object, type) and object.__module__ == "__main__":
                name = sources.file_of_class(object)
            if name is None:
                raise
            return name

    return disguised(getfile, original)


def disguised(function, original):
    """`function` in the place of `original`: warnings that skip the library's frames skip it too."""
    code = function.__code__.replace(co_filename=original.__code__.co_filename)
    names = {"__name__": original.__module__, "__builtins__": __builtins__, DISGUISE: True}
    made = types.FunctionType(code, names, original.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, original)
