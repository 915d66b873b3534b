"""Rules as code: an SLO and the engines' tables in, recording and alerting rules out. Pure."""
