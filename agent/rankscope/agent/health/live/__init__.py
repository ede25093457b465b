"""The live page of a job: its files, the routes that serve them, the document that it shows.

It knows nothing of tokens and connections; who adds its routes guards them.
"""

from __future__ import annotations

from rankscope.agent.health.live.document import read_live_page
from rankscope.agent.health.live.routes import add_live_routes

__all__ = ["add_live_routes", "read_live_page"]
