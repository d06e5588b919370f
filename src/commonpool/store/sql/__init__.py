"""A store over a database that speaks SQL: its questions and changes, written once for SQLite and PostgreSQL."""
