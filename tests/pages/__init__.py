"""Makes the parts of the documentation that follow from the code; ``python -m tests.pages`` writes them."""
