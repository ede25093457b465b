"""The verbs of ``diag`` that need torch's elastic agent."""
