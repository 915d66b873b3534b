"""Alert rules as code, burn-rate evaluation, notification, triage."""
