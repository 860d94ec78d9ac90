"""Drafts of jobs: what is filled in, what is wrong with it, what it takes, and a test of it on the base model."""
