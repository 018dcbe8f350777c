"""The store on Redis: address, codec, scripts and session, audit, operations, and the store that combines them."""
