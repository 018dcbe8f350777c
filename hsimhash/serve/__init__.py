"""Serve an index as JSON over HTTP, for clients in any language. `make_app` returns the ASGI application.

Needs Starlette (`pip install 'hsimhash[serve]'`). `hsimhash serve` runs the application.
"""

from hsimhash.extras import install_command

try:
    import starlette as _starlette  # noqa: F401
except ImportError as error:
    raise ImportError(f"hsimhash.serve needs Starlette: {install_command('serve')}", name=error.name) from error
