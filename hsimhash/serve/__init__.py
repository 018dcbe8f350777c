"""An index as JSON over HTTP, for callers in any language: `make_app` returns the ASGI application.

It needs Starlette (`pip install 'hsimhash[serve]'`); `hsimhash serve` runs it.
"""

try:
    import starlette as _starlette  # noqa: F401
except ImportError as error:
    raise ImportError("hsimhash.serve needs Starlette: pip install 'hsimhash[serve]'", name=error.name) from error
