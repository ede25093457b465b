"""Diag explains: it collects stacks and collective state, folds, classifies, names the culprit, stores it."""
