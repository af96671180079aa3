"""Tuning of an arm: `searchers` suggest configurations, `pruners` stop trials early."""
