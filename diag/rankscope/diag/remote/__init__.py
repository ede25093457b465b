"""A job behind an agent's URL: what its agents say and have stored, over HTTP."""
