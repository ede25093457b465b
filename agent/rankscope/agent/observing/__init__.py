"""Looks at the local workers without touching them: page, processes, what they have got done."""
