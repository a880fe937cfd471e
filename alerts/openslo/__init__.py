"""Objectives read from OpenSLO documents."""
