"""An index as JSON over HTTP, for callers in any language: `make_app` returns the ASGI application.

It needs Starlette (`pip install 'hsimhash[serve]'`); `hsimhash serve` runs it.
"""
