"""Second part of the worker program: what is said of an error that ended a call."""


def traceback_text(error):
    if error.__traceback__ is None and error.__cause__ is None and error.__context__ is None:
        return "".join(format_exception_only(type(error), error))  # a call that does not compile
    return "".join(format_exception(type(error), error, error.__traceback__))


def bare_text(error):
    """A traceback where the library cannot make one any more."""
    lines, trace = ["Traceback (most recent call last):"], error.__traceback__
    while trace is not None and len(lines) < BARE_LINES_MAX:
        if not is_ours(trace.tb_frame):
            code = trace.tb_frame.f_code
            lines.append('  File "%s", line %d, in %s' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return "\n".join(lines) + "\n%s\n" % (type(error).__name__,)


def chain(error):
    """The error and those it came from, a bounded number."""
    found, todo = [], [error]
    while todo and len(found) < CHAIN_MAX:
        one = todo.pop(0)
        if one is None or any(one is other for other in found):
            continue
        found.append(one)
        todo += [one.__cause__, one.__context__]
        parts = getattr(one, "exceptions", ())
        todo += [part for part in parts if isinstance(part, BaseException)] if isinstance(parts, tuple) else []
    return found


def cut_chain(error):
    for one in chain(error):
        one.__traceback__ = cut(one.__traceback__)


def cut(trace):
    """A traceback without our frames, nor those of the event loop under a top-level await."""
    if trace is not None and is_ours(trace.tb_frame):
        users = trace
        while users is not None and not users.tb_frame.f_code.co_filename.startswith("<cell "):
            users = users.tb_next
        trace = users or trace
    kept = []
    while trace is not None:
        if not is_ours(trace.tb_frame):
            kept.append(trace)
        trace = trace.tb_next
    for one, following in zip(kept, kept[1:] + [None]):
        one.tb_next = following
    return kept[0] if kept else None


def is_ours(frame):
    return frame.f_globals is OURS or DISGUISE in frame.f_globals


def hints(error):
    """What an uncaught exception, or one that it came from, says of a limit; for the daemon to look into."""
    found = 0
    for one in chain(error):
        number = one.errno if isinstance(one, OSError) else None
        if isinstance(one, MemoryError) or number == errno.ENOMEM:
            found |= HINT_MEMORY
        elif number in (errno.ENOSPC, errno.EDQUOT):
            found |= HINT_DISK
        elif number == errno.EAGAIN:
            found |= HINT_PROCESSES
        elif isinstance(one, RuntimeError) and one.args and one.args[0] == "can't start new thread":
            found |= HINT_PROCESSES
    return found
