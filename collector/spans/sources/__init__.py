"""One module a source of spans: which of its spans say something of a request, and under which keys. Data only."""
