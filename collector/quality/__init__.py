"""Quality of answers: built-in checks, redaction, and the store of texts that the operator chose to keep."""
